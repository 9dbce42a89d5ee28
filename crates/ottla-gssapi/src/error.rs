//! Why a call of the library failed.

/// A sentence for people: the attempted step, and the error of the library.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct GssError {
    message: String,
    kerberos_code: Option<u32>,
    is_passing: bool,
}

/// The first of the numbers that Kerberos libraries use for the error codes of RFC 4120, as the
/// library returns it.
const FIRST_CODE: u32 = (-1_765_328_384_i32).cast_unsigned();
const CODES: u32 = 128;

/// The codes that pass by themselves: the clocks differ for a moment, or a token is seen twice. The
/// list is that of Kafka's `KerberosError`.
const PASSING: [u32; 3] = [21, 33, 34];
const CLOCK_SKEW: u32 = 37;

impl GssError {
    pub(crate) fn new(message: impl Into<String>) -> GssError {
        GssError {
            message: message.into(),
            kerberos_code: None,
            is_passing: false,
        }
    }

    /// A transient failure, such as one of the network.
    pub fn passing(message: impl Into<String>) -> GssError {
        GssError {
            is_passing: true,
            ..GssError::new(message)
        }
    }

    /// `minor` is the library's own status.
    pub(crate) fn of_call(what: &str, reason: &str, minor: u32) -> GssError {
        let code = minor.wrapping_sub(FIRST_CODE);
        let kerberos_code = (code < CODES).then_some(code);
        let advice = match kerberos_code {
            Some(CLOCK_SKEW) => {
                "; the clocks of the client, this node and the KDC differ too much: synchronize them"
            }
            _ => "",
        };
        GssError {
            message: format!("{what}: {reason}{advice}"),
            kerberos_code,
            is_passing: kerberos_code.is_some_and(|code| PASSING.contains(&code)),
        }
    }

    /// The error code of RFC 4120, if it is one of Kerberos.
    pub fn kerberos_code(&self) -> Option<u32> {
        self.kerberos_code
    }

    /// Whether the same login may succeed later. A broker then closes the connection without an error,
    /// so that the client tries again, and a client connects again.
    pub fn is_passing(&self) -> bool {
        self.is_passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_kerberos_are_known() {
        let replay = GssError::of_call("it", "is a replay", FIRST_CODE + 34);
        assert_eq!(replay.kerberos_code(), Some(34));
        assert!(replay.is_passing());
        let skew = GssError::of_call("it", "failed", FIRST_CODE + 37);
        assert!(!skew.is_passing() && skew.to_string().contains("synchronize"));
        for other in [0, 2, FIRST_CODE - 1, FIRST_CODE + 128, u32::MAX] {
            assert_eq!(
                GssError::of_call("it", "failed", other).kerberos_code(),
                None
            );
        }
    }
}
