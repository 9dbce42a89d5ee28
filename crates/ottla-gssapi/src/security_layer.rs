//! The last two messages of a login, in which the sides agree on a security layer. They are wrapped
//! by the library; this file has their contents (RFC 4752, section 3).
//!
//! ```text
//! server: a bit for each layer it offers, the largest message that it receives (3 bytes)
//! client: the bit of one layer,           the largest message that it receives (3 bytes), authorization ID
//! ```

/// The bit of "no security layer", the only one that Kafka uses.
const NO_LAYER: u8 = 1;
const HEADER_BYTES: usize = 4;
/// What Java offers, though without a layer there are no messages that it could apply to.
const JAVAS_RECEIVE_BYTES: [u8; 3] = [1, 0, 0];

/// The server's message.
pub(crate) fn offer() -> [u8; HEADER_BYTES] {
    let [high, middle, low] = JAVAS_RECEIVE_BYTES;
    [NO_LAYER, high, middle, low]
}

/// Checks the server's message, and returns the client's.
pub(crate) fn choose(offered: &[u8], authorization_id: &str) -> Result<Vec<u8>, String> {
    let Some((layers, [_, _, _])) = offered.split_first() else {
        let length = offered.len();
        return Err(format!(
            "the offer of security layers has {length} bytes instead of {HEADER_BYTES}"
        ));
    };
    if layers & NO_LAYER == 0 {
        return Err(format!(
            "the server requires a security layer (it offers {layers:#04x}), and Kafka's protocol has none; use \
             SASL_SSL for encryption, and remove javax.security.sasl.qop there"
        ));
    }
    let mut chosen = vec![NO_LAYER, 0, 0, 0];
    chosen.extend_from_slice(authorization_id.as_bytes());
    Ok(chosen)
}

/// Checks the client's message. The authorization ID is ignored, as in Kafka: the ticket identifies
/// the client.
pub(crate) fn check_choice(chosen: &[u8]) -> Result<(), String> {
    if chosen.len() < HEADER_BYTES {
        let length = chosen.len();
        return Err(format!(
            "the choice of a security layer has {length} bytes; it needs at least {HEADER_BYTES}"
        ));
    }
    let layer = chosen[0];
    match layer & NO_LAYER {
        0 => Err(format!(
            "the client selected the security layer {layer}, which was not offered"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree_on_no_layer() {
        assert_eq!(offer(), [1, 1, 0, 0]);
        let chosen = choose(&offer(), "alice@EXAMPLE").unwrap();
        assert_eq!(chosen, b"\x01\0\0\0alice@EXAMPLE");
        assert_eq!(check_choice(&chosen), Ok(()));
        // A server that offers more.
        assert_eq!(choose(&[7, 0, 4, 0], "").unwrap(), [1, 0, 0, 0]);
    }

    #[test]
    fn other_layers_and_other_lengths_are_refused() {
        for offered in [&[][..], &[1], &[1, 0, 0], &[1, 0, 0, 0, 0]] {
            assert!(
                choose(offered, "a")
                    .unwrap_err()
                    .contains("bytes instead of 4")
            );
        }
        let refused = choose(&[6, 0, 0, 0], "a").unwrap_err();
        assert!(refused.contains("requires a security layer"), "{refused}");
        for chosen in [&[][..], &[1, 0, 0]] {
            assert!(check_choice(chosen).unwrap_err().contains("at least 4"));
        }
        for layer in [0, 2, 4] {
            assert!(check_choice(&[layer, 0, 0, 0]).is_err());
        }
    }
}
