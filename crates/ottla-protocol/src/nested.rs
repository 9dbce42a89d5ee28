//! Nested structs: single, in arrays, and nullable.

use crate::{DecodeError, EncodeError, Encoder, Message, Reader};

impl Encoder {
    pub(crate) fn structs<T: Message>(
        &mut self,
        flexible: bool,
        values: &[T],
        version: i16,
    ) -> Result<(), EncodeError> {
        self.array(flexible, values, |w, value| value.encode(w, version))
    }

    pub(crate) fn nullable_structs<T: Message>(
        &mut self,
        flexible: bool,
        values: Option<&[T]>,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.nullable_array(flexible, values, |w, value| value.encode(w, version))
    }

    pub(crate) fn nullable_struct<T: Message>(
        &mut self,
        value: Option<&T>,
        version: i16,
    ) -> Result<(), EncodeError> {
        match value {
            Some(value) => {
                self.i8(1);
                value.encode(self, version)
            }
            None => {
                self.i8(-1);
                Ok(())
            }
        }
    }

    /// Null is encoded differently in a tagged struct than in an untagged one.
    pub(crate) fn nullable_tagged_struct<T: Message>(
        &mut self,
        value: Option<&T>,
        version: i16,
    ) -> Result<(), EncodeError> {
        self.unsigned_varint(u32::from(value.is_some()));
        value.map_or(Ok(()), |value| value.encode(self, version))
    }
}

impl Reader {
    pub(crate) fn structs<T: Message>(
        &mut self,
        flexible: bool,
        least_size: usize,
        version: i16,
    ) -> Result<Vec<T>, DecodeError> {
        self.array(flexible, least_size, |r| T::decode(r, version))
    }

    pub(crate) fn nullable_structs<T: Message>(
        &mut self,
        flexible: bool,
        least_size: usize,
        version: i16,
    ) -> Result<Option<Vec<T>>, DecodeError> {
        self.nullable_array(flexible, least_size, |r| T::decode(r, version))
    }

    /// A nullable struct in a tagged field, preceded by an unsigned varint: zero for null.
    pub(crate) fn nullable_tagged_struct<T: Message>(
        &mut self,
        version: i16,
    ) -> Result<Option<T>, DecodeError> {
        if self.unsigned_varint()? == 0 {
            Ok(None)
        } else {
            T::decode(self, version).map(Some)
        }
    }

    /// A nullable struct, preceded by a byte: negative for null.
    pub(crate) fn nullable_struct<T: Message>(
        &mut self,
        version: i16,
    ) -> Result<Option<T>, DecodeError> {
        if self.i8()? < 0 {
            Ok(None)
        } else {
            T::decode(self, version).map(Some)
        }
    }
}
