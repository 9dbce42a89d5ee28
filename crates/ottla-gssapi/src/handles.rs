//! Names, credentials and security contexts of the library, as values that are freed when dropped.

use std::ffi::{CString, c_int};
use std::ptr;

use crate::error::GssError;
use crate::library::{
    BufferDesc, CONTINUE_NEEDED, ERROR_BITS, Functions, Handle, KeyValue, KeyValueSet, OidDesc,
    OidSetDesc, functions,
};

/// 1.2.840.113554.1.2.2: Kerberos 5.
static KERBEROS: [u8; 9] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02];
/// 1.2.840.113554.1.2.2.1: the name of a principal.
static PRINCIPAL: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x02, 0x01];
/// 1.2.840.113554.1.2.1.4: `service@host`.
static HOST_BASED_SERVICE: [u8; 10] = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x12, 0x01, 0x02, 0x01, 0x04];

/// The kind of status that is shown: the routine's, or the mechanism's.
const OF_GSS: c_int = 1;
const OF_MECHANISM: c_int = 2;
/// How long a credential or context should last: as long as possible.
const INDEFINITE: u32 = 0;
const MUTUAL: u32 = 2;
const REPLAY_DETECTION: u32 = 4;
const SEQUENCE_DETECTION: u32 = 8;
const INTEGRITY: u32 = 32;

/// The library only reads an identifier, though C's type does not say so.
fn oid(bytes: &'static [u8]) -> OidDesc {
    OidDesc {
        length: bytes.len() as u32,
        elements: bytes.as_ptr().cast_mut().cast(),
    }
}

/// A view of bytes as input. The library only reads it, though C's type does not say so.
fn input(bytes: &[u8]) -> BufferDesc {
    BufferDesc {
        length: bytes.len(),
        value: bytes.as_ptr().cast_mut().cast(),
    }
}

/// Bytes that the library has allocated.
struct Output<'a> {
    functions: &'a Functions,
    desc: BufferDesc,
}

impl Output<'_> {
    fn new(functions: &Functions) -> Output<'_> {
        Output {
            functions,
            desc: BufferDesc {
                length: 0,
                value: ptr::null_mut(),
            },
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        if self.desc.value.is_null() || self.desc.length == 0 {
            return Vec::new();
        }
        // SAFETY: the library has written this many bytes there, and they are freed on drop only.
        unsafe { std::slice::from_raw_parts(self.desc.value.cast::<u8>(), self.desc.length) }
            .to_vec()
    }

    fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.to_vec()).into_owned()
    }
}

impl Drop for Output<'_> {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the buffer is empty, or was filled by the library. Releasing empties it.
        unsafe { (self.functions.gss_release_buffer)(&mut minor, &mut self.desc) };
    }
}

/// Turns a status into an error that names the attempted step.
fn check(functions: &Functions, what: &str, major: u32, minor: u32) -> Result<(), GssError> {
    if major & ERROR_BITS == 0 {
        return Ok(());
    }
    // The error of the mechanism, if there is one, is more specific.
    let special = match minor {
        0 => String::new(),
        _ => status_text(functions, minor, OF_MECHANISM),
    };
    let reason = match special.is_empty() {
        true => status_text(functions, major, OF_GSS),
        false => special,
    };
    Err(GssError::of_call(what, &reason, minor))
}

fn status_text(functions: &Functions, status: u32, kind: c_int) -> String {
    let mechanism = oid(&KERBEROS);
    let mut sentences = Vec::new();
    let mut context = 0;
    loop {
        let mut text = Output::new(functions);
        let mut minor = 0;
        // SAFETY: all pointers are to values that live until the call returns.
        let major = unsafe {
            (functions.gss_display_status)(
                &mut minor,
                status,
                kind,
                &mechanism,
                &mut context,
                &mut text.desc,
            )
        };
        if major & ERROR_BITS != 0 {
            break;
        }
        sentences.push(text.to_text());
        // The library has more to say for as long as this is not 0; it never has this much.
        if context == 0 || sentences.len() == 8 {
            break;
        }
    }
    sentences.join("; ")
}

/// The name of a principal or service.
pub(crate) struct Name {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: a name is not tied to a thread, and is only read after it was made.
unsafe impl Send for Name {}

impl Name {
    /// `alice@EXAMPLE.COM`, or `kafka/broker.example.com@EXAMPLE.COM`.
    pub fn of_principal(text: &str) -> Result<Name, GssError> {
        Name::import(text, &PRINCIPAL)
    }

    /// The service at a host, whose realm the library finds.
    pub fn of_service(service: &str, host: &str) -> Result<Name, GssError> {
        Name::import(&format!("{service}@{host}"), &HOST_BASED_SERVICE)
    }

    fn import(text: &str, kind: &'static [u8]) -> Result<Name, GssError> {
        let functions = functions()?;
        let (mut buffer, kind) = (input(text.as_bytes()), oid(kind));
        let (mut minor, mut handle) = (0, ptr::null_mut());
        // SAFETY: all pointers are to values that live until the call returns. The name that is
        // written is owned by the value returned.
        let major =
            unsafe { (functions.gss_import_name)(&mut minor, &mut buffer, &kind, &mut handle) };
        let what = format!("{text} is not the name of a Kerberos principal");
        check(functions, &what, major, minor)?;
        Ok(Name { functions, handle })
    }

    pub fn into_text(self) -> Result<String, GssError> {
        let mut text = Output::new(self.functions);
        let mut minor = 0;
        // SAFETY: the name is valid until it is dropped, which is after the call, and the type of
        // the name is not requested.
        let major = unsafe {
            (self.functions.gss_display_name)(
                &mut minor,
                self.handle,
                &mut text.desc,
                ptr::null_mut(),
            )
        };
        check(self.functions, "the name of a principal", major, minor)?;
        Ok(text.to_text())
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this value owns the name, and nothing uses it afterwards.
        unsafe { (self.functions.gss_release_name)(&mut minor, &mut self.handle) };
    }
}

/// The use of a credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Usage {
    Initiate,
    Accept,
}

/// A key of a service, or the tickets of a client.
pub(crate) struct Credential {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: a credential is not tied to a thread.
unsafe impl Send for Credential {}
// SAFETY: all functions that use it take it mutably, or own it, so that one thread at a time does.
unsafe impl Sync for Credential {}

impl Credential {
    /// `store` names its location, with the library's keys. The library keeps no process-wide state
    /// of it, so each listener can have its own.
    pub fn acquire(
        what: &str,
        principal: Option<&Name>,
        usage: Usage,
        store: &[(&str, &str)],
    ) -> Result<Credential, GssError> {
        let functions = functions()?;
        let terminated = |text: &str| {
            CString::new(text)
                .map_err(|_| GssError::new(format!("{what}: {text:?} has a NUL in it")))
        };
        let texts = store
            .iter()
            .map(|(key, value)| Ok((terminated(key)?, terminated(value)?)))
            .collect::<Result<Vec<(CString, CString)>, GssError>>()?;
        let elements: Vec<KeyValue> = texts
            .iter()
            .map(|(key, value)| KeyValue {
                key: key.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        let set = KeyValueSet {
            count: elements.len() as u32,
            elements: elements.as_ptr(),
        };
        let usage = match usage {
            Usage::Initiate => 1,
            Usage::Accept => 2,
        };
        let name = principal.map_or(ptr::null_mut(), |name| name.handle);
        let (mut minor, mut handle) = (0, ptr::null_mut());
        let store = match elements.is_empty() {
            true => ptr::null(),
            false => &raw const set,
        };
        // Without this, the library would also negotiate with SPNEGO.
        let mechanism = oid(&KERBEROS);
        let mechanisms = OidSetDesc {
            count: 1,
            elements: &mechanism,
        };
        // SAFETY: `set`, `elements`, `texts` and `mechanisms` live until the call returns, and the
        // library copies what it keeps. The name is valid, or null for any. The mechanisms found
        // and the lifetime are not requested. The credential is owned by the value returned.
        let major = unsafe {
            (functions.gss_acquire_cred_from)(
                &mut minor,
                name,
                INDEFINITE,
                &mechanisms,
                usage,
                store,
                &mut handle,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(functions, what, major, minor)?;
        Ok(Credential { functions, handle })
    }

    /// Whose it is. For a client, this gets the tickets if there are none yet.
    pub fn principal(&mut self, what: &str) -> Result<String, GssError> {
        let (mut minor, mut handle) = (0, ptr::null_mut());
        // SAFETY: the credential is valid, and only the name is requested. `Name` owns the written
        // name.
        let major = unsafe {
            (self.functions.gss_inquire_cred)(
                &mut minor,
                self.handle,
                &mut handle,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(self.functions, what, major, minor)?;
        let functions = self.functions;
        Name { functions, handle }.into_text()
    }
}

impl Drop for Credential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: this value owns the credential. A context that was begun with it has its own
        // copy.
        unsafe { (self.functions.gss_release_cred)(&mut minor, &mut self.handle) };
    }
}

/// A token of a context that is being established.
pub(crate) struct Established {
    /// For the peer; may be empty.
    pub token: Vec<u8>,
    pub is_complete: bool,
}

/// The shared state of a client and a service after they have authenticated each other.
pub(crate) struct SecurityContext {
    functions: &'static Functions,
    handle: Handle,
}

// SAFETY: a context is not tied to a thread.
unsafe impl Send for SecurityContext {}
// SAFETY: all functions that use it take `&mut self`, so that one thread at a time does.
unsafe impl Sync for SecurityContext {}

impl SecurityContext {
    pub fn new() -> Result<SecurityContext, GssError> {
        Ok(SecurityContext {
            functions: functions()?,
            handle: ptr::null_mut(),
        })
    }

    /// Processes a token of a client. Returns its name once the context is complete.
    pub fn accept(
        &mut self,
        credential: &mut Credential,
        token: &[u8],
    ) -> Result<(Established, Name), GssError> {
        let mut answer = Output::new(self.functions);
        let (mut minor, mut client) = (0, ptr::null_mut());
        let mut token = input(token);
        // SAFETY: the context is null or one that this function began, and the credential is valid.
        // All other pointers are to values that live until the call returns, or null for outputs
        // that are not requested. `Name` owns the name, also if the call fails.
        let major = unsafe {
            (self.functions.gss_accept_sec_context)(
                &mut minor,
                &mut self.handle,
                credential.handle,
                &mut token,
                ptr::null(),
                &mut client,
                ptr::null_mut(),
                &mut answer.desc,
                ptr::null_mut(),
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        let functions = self.functions;
        let client = Name {
            functions,
            handle: client,
        };
        check(
            functions,
            "the client's ticket is not accepted",
            major,
            minor,
        )?;
        let established = Established {
            token: answer.to_vec(),
            is_complete: major & CONTINUE_NEEDED == 0,
        };
        Ok((established, client))
    }

    /// Makes a token for a service; `token` is the service's last one, empty at the beginning.
    pub fn initiate(
        &mut self,
        what: &str,
        credential: &mut Credential,
        service: &Name,
        token: &[u8],
    ) -> Result<Established, GssError> {
        let mut answer = Output::new(self.functions);
        let mut minor = 0;
        let mechanism = oid(&KERBEROS);
        let mut token = input(token);
        // SAFETY: the context is null or one that this function began, and credential and name are
        // valid. All other pointers are to values that live until the call returns, or null for
        // outputs that are not requested.
        let major = unsafe {
            (self.functions.gss_init_sec_context)(
                &mut minor,
                credential.handle,
                &mut self.handle,
                service.handle,
                &mechanism,
                MUTUAL | REPLAY_DETECTION | SEQUENCE_DETECTION | INTEGRITY,
                INDEFINITE,
                ptr::null(),
                &mut token,
                ptr::null_mut(),
                &mut answer.desc,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(self.functions, what, major, minor)?;
        Ok(Established {
            token: answer.to_vec(),
            is_complete: major & CONTINUE_NEEDED == 0,
        })
    }

    /// Protects a message against changes. The context must be complete.
    pub fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, GssError> {
        let mut wrapped = Output::new(self.functions);
        let mut minor = 0;
        let mut message = input(message);
        // SAFETY: the library checks that the context is complete, and refuses null. All other
        // pointers are to values that live until the call returns, or null.
        let major = unsafe {
            (self.functions.gss_wrap)(
                &mut minor,
                self.handle,
                0,
                0,
                &mut message,
                ptr::null_mut(),
                &mut wrapped.desc,
            )
        };
        check(self.functions, "a message of the login", major, minor)?;
        Ok(wrapped.to_vec())
    }

    /// The message that the peer has wrapped.
    pub fn unwrap(&mut self, wrapped: &[u8]) -> Result<Vec<u8>, GssError> {
        let mut message = Output::new(self.functions);
        let mut minor = 0;
        let mut wrapped = input(wrapped);
        // SAFETY: as for `wrap`.
        let major = unsafe {
            (self.functions.gss_unwrap)(
                &mut minor,
                self.handle,
                &mut wrapped,
                &mut message.desc,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        check(self.functions, "a message of the login", major, minor)?;
        Ok(message.to_vec())
    }
}

impl Drop for SecurityContext {
    fn drop(&mut self) {
        if self.handle.is_null() {
            return;
        }
        let mut minor = 0;
        // SAFETY: this value owns the context. No token for the peer is requested.
        unsafe {
            (self.functions.gss_delete_sec_context)(&mut minor, &mut self.handle, ptr::null_mut())
        };
    }
}
