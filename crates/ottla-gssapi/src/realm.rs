//! The default realm of this machine.

use std::ffi::CStr;
use std::ptr;

use crate::library::functions;

/// `default_realm` in `krb5.conf`, or what DNS says. `None` if there is none, or no library.
pub fn default_realm() -> Option<String> {
    let functions = functions().ok()?;
    let mut context = ptr::null_mut();
    // SAFETY: the function writes a context to the pointer, or returns an error.
    if unsafe { (functions.krb5_init_context)(&mut context) } != 0 {
        return None;
    }
    let mut text = ptr::null_mut();
    // SAFETY: the context is valid. On success `text` is a C string, which is copied and then freed
    // by the function that is meant for it. The context is freed last, and once.
    unsafe {
        let status = (functions.krb5_get_default_realm)(context, &mut text);
        let realm = (status == 0 && !text.is_null()).then(|| {
            let realm = CStr::from_ptr(text).to_string_lossy().into_owned();
            (functions.krb5_free_default_realm)(context, text);
            realm
        });
        (functions.krb5_free_context)(context);
        realm
    }
}
