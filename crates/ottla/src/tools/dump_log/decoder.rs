//! What keys and values of records are printed as.

use anyhow::bail;
use bytes::Bytes;
use ottla_records::Record;
use ottla_records::control::ControlRecordType;

use super::DumpLogArgs;

/// How a record's key and value are printed.
pub(super) enum Decoder {
    /// Each by a decoder of its own.
    Plain {
        key: PlainDecoder,
        value: PlainDecoder,
    },
}

/// Kafka's own decoders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum PlainDecoder {
    String,
    Integer,
    Long,
}

impl Decoder {
    pub(super) fn new(args: &DumpLogArgs) -> anyhow::Result<Decoder> {
        Ok(Decoder::Plain {
            key: PlainDecoder::from_class(args.key_decoder_class.as_deref())?,
            value: PlainDecoder::from_class(args.value_decoder_class.as_deref())?,
        })
    }

    /// Whether the decoder is for records that Kafka writes itself.
    pub(super) fn is_for_records(&self) -> bool {
        false
    }

    /// The texts for a record's key and value, where it has them.
    pub(super) fn decode(&self, record: &Record) -> (Option<String>, Option<String>) {
        match self {
            Decoder::Plain { key, value } => (
                record.key.as_ref().map(|it| key.text(it)),
                record.value.as_ref().map(|it| value.text(it)),
            ),
        }
    }
}

impl PlainDecoder {
    fn from_class(class: Option<&str>) -> anyhow::Result<PlainDecoder> {
        let Some(class) = class else {
            return Ok(PlainDecoder::String);
        };
        Ok(match class.rsplit('.').next().unwrap_or(class) {
            "StringDecoder" => PlainDecoder::String,
            "IntegerDecoder" => PlainDecoder::Integer,
            "LongDecoder" => PlainDecoder::Long,
            _ => bail!(
                "{class} is a Java class, which cannot be loaded here; known are Kafka's \
                 StringDecoder, IntegerDecoder and LongDecoder"
            ),
        })
    }

    fn text(self, bytes: &Bytes) -> String {
        let number = match self {
            PlainDecoder::String => None,
            PlainDecoder::Integer => bytes
                .as_ref()
                .try_into()
                .ok()
                .map(|it| i64::from(i32::from_be_bytes(it))),
            PlainDecoder::Long => bytes.as_ref().try_into().ok().map(i64::from_be_bytes),
        };
        match number {
            Some(number) => number.to_string(),
            None => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

/// A control record of the metadata log.
pub(super) fn kraft_control_record(_kind: ControlRecordType, _value: &Bytes) -> Option<String> {
    None
}
