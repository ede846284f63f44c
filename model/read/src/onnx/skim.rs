//! Reads the structure of an ONNX file and skips its weights.
//!
//! Walks the protobuf fields that [`super::wire`] names and copies them, without the payloads of large tensors, which
//! are seeked over: a file of gigabytes is read in milliseconds. Everything is bounded: how many fields are looked at,
//! how many are kept, how many bytes they have.

use super::wire::{Entry, Model, ValueInfo, metadata};
use prost::Message as _;
use std::io::{BufReader, Read, Seek, SeekFrom};

/// Payloads up to this length may be shapes, indices or factors; longer ones are weights.
const MOST_PAYLOAD: u64 = 64 << 10;
/// No name or list is longer.
const MOST_FIELD: u64 = 64 << 10;
/// The structure of the largest networks takes a few megabytes.
const MOST_KEPT: usize = 16 << 20;
const MOST_FIELDS_KEPT: usize = 1_000_000;
const MOST_FIELDS_SEEN: u64 = 2_000_000;
/// Messages in messages: a branch is three of them.
const MOST_LEVELS: usize = 30;

/// What becomes of a field.
enum Field {
    Keep,
    /// Kept where it is short.
    Payload,
    /// An entry of a node's metadata, kept where its key is one that is read: stack traces are longer than all the rest.
    Metadata,
    /// What is said of a value that is neither input nor output, kept where such metadata is among it.
    Described,
    Enter(&'static [(u64, Field)]),
}
use Field::{Described, Enter, Keep, Metadata, Payload};

static MODEL: [(u64, Field); 4] = [(1, Keep), (2, Keep), (7, Enter(&GRAPH)), (8, Enter(OPSET))];
const OPSET: &[(u64, Field)] = &[(1, Keep), (2, Keep)];
// Branches are graphs in attributes of nodes of graphs: items that refer to each other can only be static.
static GRAPH: [(u64, Field); 6] = [
    (1, Enter(&NODE)),
    (2, Keep),
    (5, Enter(TENSOR)),
    (11, Enter(VALUE_INFO)),
    (12, Enter(VALUE_INFO)),
    (13, Described),
];
static NODE: [(u64, Field); 7] =
    [(1, Keep), (2, Keep), (3, Keep), (4, Keep), (5, Enter(&ATTRIBUTE)), (7, Keep), (9, Metadata)];
const DESCRIPTION: &[(u64, Field)] = &[(1, Payload), (4, Metadata)];
const ENTRY: &[(u64, Field)] = &[(1, Payload), (2, Payload)];
static ATTRIBUTE: [(u64, Field); 9] = [
    (1, Keep),
    (2, Keep),
    (3, Keep),
    (4, Payload),
    (5, Enter(TENSOR)),
    (6, Enter(&GRAPH)),
    (7, Keep),
    (8, Keep),
    (20, Keep),
];
const TENSOR: &[(u64, Field)] =
    &[(1, Keep), (2, Keep), (4, Payload), (5, Payload), (7, Payload), (8, Keep), (9, Payload), (10, Payload)];
const VALUE_INFO: &[(u64, Field)] = &[(1, Keep), (2, Enter(&[(1, Enter(TENSOR_TYPE))]))];
const TENSOR_TYPE: &[(u64, Field)] = &[(1, Keep), (2, Enter(&[(1, Enter(&[(1, Keep), (2, Keep)]))]))];

/// Reads a model without its weights.
///
/// # Errors
/// One line that says what is not as in an ONNX file, and where.
pub fn read(file: impl Read + Seek) -> Result<Model, String> {
    let mut skimmer = Skimmer { file: BufReader::with_capacity(64 << 10, file), at: 0, seen: 0, kept: 0 };
    let length = skimmer.file.seek(SeekFrom::End(0)).map_err(|e| e.to_string())?;
    skimmer.file.rewind().map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    skimmer.message(&MODEL, length, &mut bytes, 0)?;
    Model::decode(&bytes[..]).map_err(|e| format!("not an ONNX model: {e}"))
}

struct Skimmer<R> {
    file: BufReader<R>,
    /// Bytes read so far.
    at: u64,
    seen: u64,
    kept: usize,
}

impl<R: Read + Seek> Skimmer<R> {
    /// Copies what is to be kept of the message that ends at `end`.
    fn message(
        &mut self,
        fields: &'static [(u64, Field)],
        end: u64,
        out: &mut Vec<u8>,
        level: usize,
    ) -> Result<(), String> {
        if level > MOST_LEVELS {
            return Err("its branches are nested more deeply than any network's".to_string());
        }
        while self.at < end {
            let start = self.at;
            self.seen += 1;
            if self.seen > MOST_FIELDS_SEEN {
                return Err(format!("more than {MOST_FIELDS_SEEN} fields, which no network has"));
            }
            let key = self.varint(end)?;
            let (number, wire) = (key >> 3, key & 7);
            if number == 0 {
                return Err(format!("not an ONNX model: no field begins at byte {start}"));
            }
            let field = fields.iter().find(|(n, _)| *n == number).map(|(_, field)| field);
            if field.is_some() {
                self.kept += 1;
            }
            if self.kept > MOST_FIELDS_KEPT || out.len() > MOST_KEPT {
                return Err("its structure alone is larger than any network's".to_string());
            }
            match wire {
                0 => {
                    let value = self.varint(end)?;
                    if field.is_some() {
                        put_varint(out, key);
                        put_varint(out, value);
                    }
                }
                1 => self.fixed::<8>(key, field, end, out)?,
                5 => self.fixed::<4>(key, field, end, out)?,
                2 => self.delimited(key, field, end, out, level)?,
                _ => return Err(format!("not an ONNX model: byte {start} begins no field of a known type")),
            }
        }
        Ok(())
    }

    fn delimited(
        &mut self,
        key: u64,
        field: Option<&Field>,
        end: u64,
        out: &mut Vec<u8>,
        level: usize,
    ) -> Result<(), String> {
        let length = self.varint(end)?;
        let left = end - self.at;
        if length > left {
            return Err(format!("cut short: {length} bytes are announced at byte {}, {left} are left", self.at));
        }
        match field {
            Some(Enter(inner)) => {
                let mut message = Vec::new();
                self.message(inner, self.at + length, &mut message, level + 1)?;
                put_varint(out, key);
                put_varint(out, message.len() as u64);
                out.append(&mut message);
                Ok(())
            }
            Some(of @ (Metadata | Described)) => {
                let (mut message, kept) = (Vec::new(), self.kept);
                let inner = if matches!(of, Metadata) { ENTRY } else { DESCRIPTION };
                self.message(inner, self.at + length, &mut message, level + 1)?;
                let read = match of {
                    Metadata => Entry::decode(&message[..]).is_ok_and(|e| metadata::KEPT.contains(&&e.key[..])),
                    _ => ValueInfo::decode(&message[..]).is_ok_and(|v| !v.metadata.is_empty()),
                };
                if read {
                    put_varint(out, key);
                    put_varint(out, message.len() as u64);
                    out.append(&mut message);
                } else {
                    self.kept = kept;
                }
                Ok(())
            }
            Some(Keep) if length > MOST_FIELD => {
                Err(format!("a name or list of {length} bytes at byte {}, which no network has", self.at))
            }
            Some(Keep | Payload) if length <= MOST_PAYLOAD => {
                put_varint(out, key);
                put_varint(out, length);
                let start = out.len();
                out.resize(start + length as usize, 0);
                self.exactly(&mut out[start..])
            }
            _ => {
                let distance = i64::try_from(length).map_err(|e| e.to_string())?;
                self.file.seek_relative(distance).map_err(|e| e.to_string())?;
                self.at += length;
                Ok(())
            }
        }
    }

    fn fixed<const N: usize>(
        &mut self,
        key: u64,
        field: Option<&Field>,
        end: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        if end - self.at < N as u64 {
            return Err(format!("cut short at byte {}", self.at));
        }
        let mut value = [0; N];
        self.exactly(&mut value)?;
        if field.is_some() {
            put_varint(out, key);
            out.extend(value);
        }
        Ok(())
    }

    fn varint(&mut self, end: u64) -> Result<u64, String> {
        let (start, mut value) = (self.at, 0u64);
        for shift in (0..70).step_by(7) {
            if self.at >= end {
                return Err(format!("cut short at byte {start}"));
            }
            let mut byte = [0];
            self.exactly(&mut byte)?;
            value |= u64::from(byte[0] & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte[0] < 0x80 {
                return Ok(value);
            }
        }
        Err(format!("not an ONNX model: no number ends within ten bytes of byte {start}"))
    }

    fn exactly(&mut self, buffer: &mut [u8]) -> Result<(), String> {
        self.file.read_exact(buffer).map_err(|e| format!("at byte {}: {e}", self.at))?;
        self.at += buffer.len() as u64;
        Ok(())
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::super::wire::{Graph, Node, Tensor};
    use super::*;
    use std::io::Cursor;

    fn model(raw: Vec<u8>) -> Vec<u8> {
        let initializers = vec![Tensor { name: "w".into(), dims: vec![4, 5], data_type: 1, raw, ..Tensor::default() }];
        let graph = Graph { name: "g".into(), initializers, ..Graph::default() };
        Model { ir_version: 8, graph: Some(graph), ..Model::default() }.encode_to_vec()
    }

    #[test]
    fn weights_are_left_out_and_short_payloads_kept() {
        let weight =
            |raw| read(Cursor::new(model(raw))).expect("a model").graph.expect("a graph").initializers[0].clone();
        assert_eq!(weight(vec![1; 80]).raw, vec![1; 80]);
        let large = weight(vec![1; 1 << 20]);
        assert!(large.raw.is_empty());
        assert_eq!((large.name.as_str(), &large.dims[..]), ("w", &[4, 5][..]));
    }

    #[test]
    fn of_metadata_only_what_is_read_is_kept() {
        let entry = |key: &str, value: &str| Entry { key: key.into(), value: value.into() };
        let trace = "File \"resnet.py\", line 93, in forward\n".repeat(5_000);
        let node = |value: &str| Node {
            op: "Conv".into(),
            metadata: vec![entry("pkg.torch.onnx.stack_trace", value), entry(metadata::SCOPES, "['', 'conv1']")],
            ..Node::default()
        };
        // Traces of every node together are longer than the structure of any network.
        let nodes = (0..200).map(|i| node(&trace[i..])).collect();
        let graph = Graph { nodes, ..Graph::default() };
        let file = Model { graph: Some(graph), ..Model::default() }.encode_to_vec();
        assert!(file.len() > MOST_KEPT);
        let read = read(Cursor::new(file)).expect("a model").graph.expect("a graph");
        assert_eq!(read.nodes.len(), 200);
        assert!(read.nodes.iter().all(|n| n.metadata == [entry(metadata::SCOPES, "['', 'conv1']")]));
    }

    #[test]
    fn a_cut_file_is_an_error_wherever_it_is_cut() {
        let whole = model(vec![1; 80]);
        for length in 3..whole.len() {
            let error = read(Cursor::new(&whole[..length])).expect_err("cut");
            assert!(error.contains("cut short"), "{length}: {error}");
        }
    }

    #[test]
    fn many_empty_messages_and_endless_fields_are_refused() {
        let mut nodes = Vec::new();
        for _ in 0..MOST_FIELDS_KEPT + 1 {
            nodes.extend([0x0a, 0]);
        }
        let mut file = vec![0x3a];
        put_varint(&mut file, nodes.len() as u64);
        file.extend(nodes);
        assert!(read(Cursor::new(file)).expect_err("too many nodes").contains("larger than any"));
        let endless = [0xf8, 0x07, 1].repeat(MOST_FIELDS_SEEN as usize + 1);
        assert!(read(Cursor::new(endless)).expect_err("too many fields").contains("fields"));
    }
}
