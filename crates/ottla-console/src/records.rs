//! Reading records: which ones, how they are shown, and how they are streamed.

pub(crate) mod decode;
pub(crate) mod events;
pub(crate) mod export;
mod expression;
pub(crate) mod filter;
pub(crate) mod ranges;
pub(crate) mod scan;
pub(crate) mod selection;
mod text;
