//! The content of a file, in chunks that copies share until one of them writes.
//!
//! A simulation forks its disk for every crash and syncs its log for every commit, and both are copies of whole files. With shared
//! chunks they cost a pointer per 4 KiB, and only what is written afterwards is copied.

use std::sync::Arc;

/// LIMIT: SQLite's usual page, so that a page of a database is one chunk.
const CHUNK_BYTES: usize = 4096;

type Chunk = [u8; CHUNK_BYTES];

/// INVARIANT: there are exactly as many chunks as `len` needs, and the last one is zero after `len`.
#[derive(Clone, Default)]
pub(crate) struct Image {
    chunks: Vec<Arc<Chunk>>,
    len: usize,
}

impl Image {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Fills the front of `buffer` with what is there, and says how much that was.
    pub(crate) fn read(&self, at: usize, buffer: &mut [u8]) -> usize {
        let count = self.len.saturating_sub(at).min(buffer.len());
        let mut rest = &mut buffer[..count];
        let mut at = at;
        while !rest.is_empty() {
            let (chunk, offset) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
            let (front, back) = rest.split_at_mut(rest.len().min(CHUNK_BYTES - offset));
            front.copy_from_slice(&self.chunks[chunk][offset..offset + front.len()]);
            at += front.len();
            rest = back;
        }
        count
    }

    /// Grows if it must; a gap before `at` reads as zeroes.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.resize(self.len.max(at + bytes.len()));
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let (chunk, offset) = (at / CHUNK_BYTES, at % CHUNK_BYTES);
            let (front, back) = rest.split_at(rest.len().min(CHUNK_BYTES - offset));
            Arc::make_mut(&mut self.chunks[chunk])[offset..offset + front.len()].copy_from_slice(front);
            at += front.len();
            rest = back;
        }
    }

    pub(crate) fn resize(&mut self, len: usize) {
        let chunks_count = len.div_ceil(CHUNK_BYTES);
        if chunks_count > self.chunks.len() {
            self.chunks.resize(chunks_count, Arc::new([0; CHUNK_BYTES]));
        }
        self.chunks.truncate(chunks_count);
        if len < self.len && !len.is_multiple_of(CHUNK_BYTES) {
            Arc::make_mut(&mut self.chunks[chunks_count - 1])[len % CHUNK_BYTES..].fill(0);
        }
        self.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn content(image: &Image) -> Vec<u8> {
        let mut bytes = vec![0; image.len()];
        assert_eq!(image.read(0, &mut bytes), bytes.len());
        bytes
    }

    #[test]
    fn an_image_is_a_vector_of_bytes_and_its_copies_stay_as_they_were() {
        for seed in 0..200 {
            let mut random = Random(seed);
            let (mut image, mut bytes) = (Image::default(), Vec::new());
            let mut copies = Vec::new();
            for step in 1..=40_u8 {
                let at = random.below(4 * CHUNK_BYTES);
                if random.below(5) == 0 {
                    image.resize(at);
                    bytes.resize(at, 0);
                } else {
                    let data = vec![step; random.below(2 * CHUNK_BYTES)];
                    image.write(at, &data);
                    bytes.resize(bytes.len().max(at + data.len()), 0);
                    bytes[at..at + data.len()].copy_from_slice(&data);
                }
                assert!(content(&image) == bytes, "seed {seed}, step {step}");
                copies.push((image.clone(), bytes.clone()));
            }
            assert!(copies.iter().all(|(image, bytes)| content(image) == *bytes), "seed {seed}");
        }
    }

    #[test]
    fn a_read_past_the_end_gets_what_is_there() {
        let mut image = Image::default();
        image.write(CHUNK_BYTES - 1, &[1, 2, 3]);
        let mut buffer = [9; 4];
        assert_eq!((image.read(CHUNK_BYTES, &mut buffer), buffer), (2, [2, 3, 9, 9]));
        assert_eq!(image.read(CHUNK_BYTES + 2, &mut buffer), 0);
        assert_eq!(image.read(10 * CHUNK_BYTES, &mut buffer), 0);
    }
}
