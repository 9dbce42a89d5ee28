//! The functions of the system's GSSAPI library, and the C types that they take (RFC 2744).
//!
//! Nothing here is called outside `handles.rs` and `realm.rs`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use crate::error::GssError;

pub(crate) const FILE: &str = "libgssapi_krb5.so.2";

/// A name, a credential or a security context of the library. Null is none.
pub(crate) type Handle = *mut c_void;

#[repr(C)]
pub(crate) struct BufferDesc {
    pub length: usize,
    pub value: *mut c_void,
}

#[repr(C)]
pub(crate) struct OidDesc {
    pub length: u32,
    pub elements: *mut c_void,
}

#[repr(C)]
pub(crate) struct OidSetDesc {
    pub count: usize,
    pub elements: *const OidDesc,
}

#[repr(C)]
pub(crate) struct KeyValue {
    pub key: *const c_char,
    pub value: *const c_char,
}

/// Where a credential is taken from.
#[repr(C)]
pub(crate) struct KeyValueSet {
    pub count: u32,
    pub elements: *const KeyValue,
}

pub(crate) const CONTINUE_NEEDED: u32 = 1;
/// A status with any of these bits is an error.
pub(crate) const ERROR_BITS: u32 = 0xffff_0000;

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        /// The functions in use.
        pub(crate) struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// Keeps the functions in memory.
            _library: Library,
        }

        impl Functions {
            fn find(library: Library) -> Result<Functions, GssError> {
                $(
                    // SAFETY: the type is that of the function of this name in RFC 2744, in MIT's
                    // `gssapi_ext.h` and in `krb5.h`, which MIT keeps stable under this file name.
                    // The pointer is valid while the library is loaded: it is kept in the same
                    // value, which is never dropped.
                    let $name = unsafe {
                        let symbol = library.get::<unsafe extern "C" fn($($argument),*) -> $result>(
                            concat!(stringify!($name), "\0").as_bytes(),
                        );
                        *symbol.map_err(|error| {
                            GssError::new(format!(
                                "{FILE} has no {}: {error}; install MIT Kerberos 1.11 or newer",
                                stringify!($name)
                            ))
                        })?
                    };
                )*
                Ok(Functions { $($name,)* _library: library })
            }
        }
    };
}

functions! {
    gss_import_name: fn(*mut u32, *mut BufferDesc, *const OidDesc, *mut Handle) -> u32;
    gss_display_name: fn(*mut u32, Handle, *mut BufferDesc, *mut *const OidDesc) -> u32;
    gss_release_name: fn(*mut u32, *mut Handle) -> u32;
    gss_acquire_cred_from: fn(
        *mut u32, Handle, u32, *const OidSetDesc, c_int, *const KeyValueSet, *mut Handle, *mut c_void, *mut u32,
    ) -> u32;
    gss_inquire_cred: fn(*mut u32, Handle, *mut Handle, *mut u32, *mut c_int, *mut c_void) -> u32;
    gss_release_cred: fn(*mut u32, *mut Handle) -> u32;
    gss_accept_sec_context: fn(
        *mut u32, *mut Handle, Handle, *mut BufferDesc, *const c_void, *mut Handle, *mut *const OidDesc,
        *mut BufferDesc, *mut u32, *mut u32, *mut Handle,
    ) -> u32;
    gss_init_sec_context: fn(
        *mut u32, Handle, *mut Handle, Handle, *const OidDesc, u32, u32, *const c_void, *mut BufferDesc,
        *mut *const OidDesc, *mut BufferDesc, *mut u32, *mut u32,
    ) -> u32;
    gss_delete_sec_context: fn(*mut u32, *mut Handle, *mut BufferDesc) -> u32;
    gss_wrap: fn(*mut u32, Handle, c_int, u32, *mut BufferDesc, *mut c_int, *mut BufferDesc) -> u32;
    gss_unwrap: fn(*mut u32, Handle, *mut BufferDesc, *mut BufferDesc, *mut c_int, *mut u32) -> u32;
    gss_release_buffer: fn(*mut u32, *mut BufferDesc) -> u32;
    gss_display_status: fn(*mut u32, u32, c_int, *const OidDesc, *mut u32, *mut BufferDesc) -> u32;
    krb5_init_context: fn(*mut Handle) -> i32;
    krb5_free_context: fn(Handle) -> ();
    krb5_get_default_realm: fn(Handle, *mut *mut c_char) -> i32;
    krb5_free_default_realm: fn(Handle, *mut c_char) -> ();
}

/// Loads the library at the first call. A failure is not remembered: the package may be installed
/// while this process runs.
pub(crate) fn functions() -> Result<&'static Functions, GssError> {
    static LOADED: OnceLock<Functions> = OnceLock::new();
    if let Some(loaded) = LOADED.get() {
        return Ok(loaded);
    }
    // SAFETY: loading runs the initializers of the library and of its dependencies. The
    // initializers of MIT Kerberos set up locks and error tables, and depend on nothing in this
    // process.
    let library = unsafe { Library::new(FILE) };
    let library = library.map_err(|error| {
        GssError::new(format!(
            "SASL GSSAPI needs the Kerberos library {FILE}, which cannot be loaded ({error}); install the package \
             libgssapi-krb5-2 (Debian, Ubuntu), krb5-libs (Fedora, RHEL) or krb5 (SUSE, Alpine, Arch)"
        ))
    })?;
    let found = Functions::find(library)?;
    Ok(LOADED.get_or_init(|| found))
}
