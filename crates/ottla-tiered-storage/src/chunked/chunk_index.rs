//! Where the chunks of a log are, in the segment and in its object.
//!
//! Aiven's plugin: `ChunkIndex`, `FixedSizeChunkIndex`, `VariableSizeChunkIndex`.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::chunk_sizes;

/// One chunk: a part of the segment that is compressed and encrypted by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    pub id: u32,
    /// Position and size in the segment.
    pub original_position: u64,
    pub original_size: u32,
    /// Position and size in the object.
    pub transformed_position: u64,
    pub transformed_size: u32,
}

impl Chunk {
    /// The bytes of the object that hold it.
    pub fn transformed_range(&self) -> Range<u64> {
        self.transformed_position..self.transformed_position + u64::from(self.transformed_size)
    }

    pub fn original_end(&self) -> u64 {
        self.original_position + u64::from(self.original_size)
    }
}

/// The form in the manifest. Sizes are Java `int`s.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum ChunkIndexForm {
    /// All chunks except the last have one size after the transformation.
    #[serde(rename_all = "camelCase")]
    Fixed {
        original_chunk_size: i32,
        original_file_size: i32,
        transformed_chunk_size: i32,
        final_transformed_chunk_size: i32,
    },
    #[serde(rename_all = "camelCase")]
    Variable {
        original_chunk_size: i32,
        original_file_size: i32,
        transformed_chunks: String,
    },
}

/// The chunks in order. They cover the segment without gaps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChunkIndex {
    original_chunk_size: u32,
    original_file_size: u64,
    /// Where each chunk ends in the object. A segment may have millions.
    ends: Vec<u64>,
}

/// The index contradicts itself.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunkIndexError {
    #[error("chunkIndex.{field} is {value}")]
    Negative { field: &'static str, value: i32 },
    #[error("chunkIndex has {found} chunks, and {expected} make up the segment")]
    Count { found: usize, expected: usize },
    #[error("chunkIndex has {0} chunks, more than {max}", max = chunk_sizes::MAX_CHUNKS)]
    TooMany(usize),
    #[error(transparent)]
    Sizes(#[from] chunk_sizes::ChunkSizesError),
}

impl ChunkIndex {
    /// An index of chunks that were transformed to these sizes, in order.
    pub fn new(
        original_chunk_size: u32,
        original_file_size: u64,
        transformed_sizes: &[u32],
    ) -> Result<ChunkIndex, ChunkIndexError> {
        let expected = chunk_count(original_file_size, original_chunk_size)?;
        if transformed_sizes.len() != expected {
            let found = transformed_sizes.len();
            return Err(ChunkIndexError::Count { found, expected });
        }
        let mut end = 0;
        let ends = transformed_sizes.iter().map(|&size| {
            end += u64::from(size);
            end
        });
        Ok(ChunkIndex {
            original_chunk_size,
            original_file_size,
            ends: ends.collect(),
        })
    }

    pub fn from_form(form: &ChunkIndexForm) -> Result<ChunkIndex, ChunkIndexError> {
        let (ChunkIndexForm::Fixed {
            original_chunk_size,
            original_file_size,
            ..
        }
        | ChunkIndexForm::Variable {
            original_chunk_size,
            original_file_size,
            ..
        }) = form;
        let chunk_size = natural("originalChunkSize", *original_chunk_size)?;
        if chunk_size == 0 {
            return Err(ChunkIndexError::Negative {
                field: "originalChunkSize",
                value: 0,
            });
        }
        let file_size = u64::from(natural("originalFileSize", *original_file_size)?);
        let sizes = match form {
            ChunkIndexForm::Fixed {
                transformed_chunk_size,
                final_transformed_chunk_size,
                ..
            } => {
                let size = natural("transformedChunkSize", *transformed_chunk_size)?;
                let last = natural("finalTransformedChunkSize", *final_transformed_chunk_size)?;
                let mut sizes = vec![size; chunk_count(file_size, chunk_size)?];
                if let Some(end) = sizes.last_mut() {
                    *end = last;
                }
                sizes
            }
            ChunkIndexForm::Variable {
                transformed_chunks, ..
            } => chunk_sizes::decode(transformed_chunks)?,
        };
        ChunkIndex::new(chunk_size, file_size, &sizes)
    }

    /// `fixed` if the size after the transformation follows from the size before it, as it does
    /// without compression.
    pub fn to_form(&self, is_fixed: bool) -> ChunkIndexForm {
        let original_chunk_size = self.original_chunk_size as i32;
        let original_file_size = self.original_file_size as i32;
        if is_fixed {
            // Growth is the same for each chunk, so one chunk tells it.
            let (last_original, last) = match self.chunk(self.count().saturating_sub(1)) {
                Some(chunk) => (chunk.original_size as i32, chunk.transformed_size as i32),
                None => (0, 0),
            };
            return ChunkIndexForm::Fixed {
                original_chunk_size,
                original_file_size,
                transformed_chunk_size: last - last_original + original_chunk_size,
                final_transformed_chunk_size: last,
            };
        }
        let chunks = (0..self.count()).filter_map(|id| self.chunk(id));
        let sizes: Vec<u32> = chunks.map(|chunk| chunk.transformed_size).collect();
        ChunkIndexForm::Variable {
            original_chunk_size,
            original_file_size,
            transformed_chunks: chunk_sizes::encode(&sizes),
        }
    }

    pub fn count(&self) -> u32 {
        self.ends.len() as u32
    }

    /// What it takes in memory besides itself.
    pub fn heap_bytes(&self) -> u64 {
        std::mem::size_of_val(self.ends.as_slice()) as u64
    }

    pub fn original_file_size(&self) -> u64 {
        self.original_file_size
    }

    /// The size of the object that holds the chunks.
    pub fn transformed_file_size(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    pub fn chunk(&self, id: u32) -> Option<Chunk> {
        let end = *self.ends.get(id as usize)?;
        let before = id.checked_sub(1);
        let transformed_position = before.map_or(0, |before| self.ends[before as usize]);
        let original_position = u64::from(id) * u64::from(self.original_chunk_size);
        let rest = self.original_file_size - original_position;
        Some(Chunk {
            id,
            original_position,
            original_size: rest.min(self.original_chunk_size.into()) as u32,
            transformed_position,
            transformed_size: (end - transformed_position) as u32,
        })
    }

    /// The chunk with the byte at `position` of the segment.
    pub fn chunk_at(&self, position: u64) -> Option<Chunk> {
        self.chunk(u32::try_from(position / u64::from(self.original_chunk_size)).ok()?)
    }
}

/// A few bytes of a manifest must not become gigabytes of memory.
fn chunk_count(file_size: u64, chunk_size: u32) -> Result<usize, ChunkIndexError> {
    let count = file_size.div_ceil(chunk_size.into()) as usize;
    match count <= chunk_sizes::MAX_CHUNKS {
        true => Ok(count),
        false => Err(ChunkIndexError::TooMany(count)),
    }
}

fn natural(field: &'static str, value: i32) -> Result<u32, ChunkIndexError> {
    u32::try_from(value).map_err(|_| ChunkIndexError::Negative { field, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_the_segment() {
        let index = ChunkIndex::new(100, 250, &[40, 30, 20]).unwrap();
        let chunks: Vec<Chunk> = (0..3).filter_map(|id| index.chunk(id)).collect();
        assert_eq!(chunks[2].original_size, 50);
        assert_eq!(chunks[2].transformed_range(), 70..90);
        assert_eq!(index.chunk_at(199), Some(chunks[1]));
        assert_eq!(index.chunk_at(250), Some(chunks[2]));
        assert_eq!(index.chunk_at(300), None);
        assert_eq!(index.transformed_file_size(), 90);
        let empty = ChunkIndex::new(100, 0, &[]).unwrap();
        assert_eq!((empty.chunk(0), empty.transformed_file_size()), (None, 0));
    }

    #[test]
    fn both_forms_survive() {
        let fixed = ChunkIndex::new(100, 250, &[128, 128, 78]).unwrap();
        let form = fixed.to_form(true);
        let json = serde_json::to_string(&form).unwrap();
        assert_eq!(
            json,
            r#"{"type":"fixed","originalChunkSize":100,"originalFileSize":250,"transformedChunkSize":128,"finalTransformedChunkSize":78}"#
        );
        assert_eq!(ChunkIndex::from_form(&form), Ok(fixed));
        let variable = ChunkIndex::new(100, 250, &[4, 700_000, 5]).unwrap();
        let form: ChunkIndexForm =
            serde_json::from_str(&serde_json::to_string(&variable.to_form(false)).unwrap())
                .unwrap();
        assert_eq!(ChunkIndex::from_form(&form), Ok(variable));
        // One chunk, shorter than the chunk size.
        let short = ChunkIndex::new(100, 60, &[88]).unwrap();
        assert_eq!(ChunkIndex::from_form(&short.to_form(true)), Ok(short));
    }

    #[test]
    fn contradictions_are_refused() {
        let form = ChunkIndexForm::Variable {
            original_chunk_size: 100,
            original_file_size: 250,
            transformed_chunks: chunk_sizes::encode(&[1, 2]),
        };
        assert_eq!(
            ChunkIndex::from_form(&form),
            Err(ChunkIndexError::Count {
                found: 2,
                expected: 3
            })
        );
        for (chunk_size, file_size) in [(0, 1), (-1, 1), (1, -1)] {
            let form = ChunkIndexForm::Fixed {
                original_chunk_size: chunk_size,
                original_file_size: file_size,
                transformed_chunk_size: 1,
                final_transformed_chunk_size: 1,
            };
            assert!(ChunkIndex::from_form(&form).is_err());
        }
        let form = ChunkIndexForm::Fixed {
            original_chunk_size: 1,
            original_file_size: i32::MAX,
            transformed_chunk_size: 1,
            final_transformed_chunk_size: 1,
        };
        let refused = ChunkIndex::from_form(&form);
        assert_eq!(refused, Err(ChunkIndexError::TooMany(i32::MAX as usize)));
    }
}
