//! What is known of a tensor before anything runs: its dimensions, and its values where they are few and constant.

use super::wire::{self, element};
use std::rc::Rc;

/// Values are kept up to this many: shapes, indices, factors.
pub const MOST_VALUES: i64 = 8192;
/// No tensor of a network has more dimensions.
pub const MOST_DIMS: usize = 12;
/// No dimension is larger, so that a product of three with each other's counts still fits where it is checked.
pub const LARGEST: i64 = 1 << 40;

/// Dimensions and, where known, values.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Outermost first; the batch is among them.
    pub dims: Vec<i64>,
    /// Real numbers rather than integers, truth values or text.
    pub real: bool,
    /// In row-major order.
    pub data: Option<Data>,
}

/// Known values.
#[derive(Clone, Debug, PartialEq)]
pub enum Data {
    /// Integers and truth values.
    Ints(Rc<[i64]>),
    /// Real numbers.
    Reals(Rc<[f64]>),
}

impl Tensor {
    /// A tensor whose values are not known.
    ///
    /// # Errors
    /// When a dimension is negative or absurd, or there are too many.
    pub fn new(dims: Vec<i64>, real: bool) -> Result<Self, String> {
        if dims.len() > MOST_DIMS {
            return Err(format!("a tensor of {} dimensions, {MOST_DIMS} at most are read", dims.len()));
        }
        if let Some(dim) = dims.iter().find(|d| !(0..=LARGEST).contains(*d)) {
            return Err(format!("a dimension of {dim}"));
        }
        if elements(&dims).is_none() {
            return Err(format!("{dims:?} has too many elements to count"));
        }
        Ok(Self { dims, real, data: None })
    }

    /// A list of known integers.
    pub fn list(values: Vec<i64>) -> Self {
        Self { dims: vec![values.len() as i64], real: false, data: Some(Data::Ints(values.into())) }
    }

    /// Number of elements.
    pub fn elements(&self) -> i64 {
        elements(&self.dims).unwrap_or(i64::MAX)
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// Known integers, in order.
    pub fn ints(&self) -> Option<&[i64]> {
        match &self.data {
            Some(Data::Ints(values)) => Some(values),
            _ => None,
        }
    }

    /// The single known value, as a real number, of a tensor of one element.
    pub fn scalar(&self) -> Option<f64> {
        match &self.data {
            Some(Data::Ints(v)) if v.len() == 1 => Some(v[0] as f64),
            Some(Data::Reals(v)) if v.len() == 1 => Some(v[0]),
            _ => None,
        }
    }

    /// The tensor of an initializer or constant.
    ///
    /// # Errors
    /// When its dimensions are not dimensions. Values that are missing, elsewhere or too many are simply not known.
    pub fn from_wire(tensor: &wire::Tensor) -> Result<Self, String> {
        let mut read = Self::new(tensor.dims.clone(), element::is_real(tensor.data_type))?;
        let count = read.elements();
        if count <= MOST_VALUES {
            read.data = values(tensor).filter(|data| data.len() as i64 == count);
        }
        Ok(read)
    }
}

impl Data {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::Ints(v) => v.len(),
            Self::Reals(v) => v.len(),
        }
    }

    /// The values at these positions; `None` where one does not exist.
    pub fn select(&self, positions: impl Iterator<Item = Option<usize>>) -> Option<Self> {
        Some(match self {
            Self::Ints(v) => Self::Ints(positions.map(|p| v.get(p?).copied()).collect::<Option<_>>()?),
            Self::Reals(v) => Self::Reals(positions.map(|p| v.get(p?).copied()).collect::<Option<_>>()?),
        })
    }

    /// As real numbers.
    pub fn reals(&self) -> Rc<[f64]> {
        match self {
            Self::Ints(v) => v.iter().map(|&x| x as f64).collect(),
            Self::Reals(v) => v.clone(),
        }
    }
}

/// Product of dimensions, `None` beyond 2^62.
pub fn elements(dims: &[i64]) -> Option<i64> {
    dims.iter().try_fold(1i64, |a, &d| a.checked_mul(d)).filter(|n| *n <= 1 << 62)
}

fn values(tensor: &wire::Tensor) -> Option<Data> {
    fn chunks<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
        bytes.chunks_exact(N).filter_map(|c| c.try_into().ok())
    }
    use element::{BFLOAT16, BOOL, DOUBLE, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8};
    let raw = &tensor.raw;
    let data = match tensor.data_type {
        FLOAT => {
            let bytes = if raw.is_empty() { &tensor.floats } else { raw };
            Data::Reals(chunks(bytes).map(|b| f64::from(f32::from_le_bytes(b))).collect())
        }
        DOUBLE => {
            let bytes = if raw.is_empty() { &tensor.doubles } else { raw };
            Data::Reals(chunks(bytes).map(f64::from_le_bytes).collect())
        }
        FLOAT16 | BFLOAT16 => {
            let widen = |bits: u16| match tensor.data_type {
                BFLOAT16 => f64::from(f32::from_bits(u32::from(bits) << 16)),
                _ => half(bits),
            };
            Data::Reals(match raw.is_empty() {
                true => varints(&tensor.int32s)?.into_iter().map(|v| widen(v as u16)).collect(),
                false => chunks(raw).map(|b| widen(u16::from_le_bytes(b))).collect(),
            })
        }
        INT64 if raw.is_empty() => Data::Ints(varints(&tensor.int64s)?.into()),
        INT64 => Data::Ints(chunks(raw).map(i64::from_le_bytes).collect()),
        INT32 | INT8 | UINT8 | BOOL if raw.is_empty() => Data::Ints(varints(&tensor.int32s)?.into()),
        INT32 => Data::Ints(chunks(raw).map(|b| i64::from(i32::from_le_bytes(b))).collect()),
        UINT8 | BOOL => Data::Ints(raw.iter().map(|&b| i64::from(b)).collect()),
        INT8 => Data::Ints(raw.iter().map(|&b| i64::from(b as i8)).collect()),
        _ => return None,
    };
    Some(data)
}

/// The numbers of a packed repeated field.
fn varints(bytes: &[u8]) -> Option<Vec<i64>> {
    let mut rest = bytes;
    let mut values = Vec::new();
    while !rest.is_empty() {
        values.push(prost::encoding::decode_varint(&mut rest).ok()? as i64);
    }
    Some(values)
}

/// An IEEE 754 half-precision number.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2f64.powi(exponent - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(data_type: i32, dims: &[i64], fill: impl FnOnce(&mut wire::Tensor)) -> Tensor {
        let mut tensor = wire::Tensor { data_type, dims: dims.to_vec(), ..wire::Tensor::default() };
        fill(&mut tensor);
        Tensor::from_wire(&tensor).expect("dimensions")
    }

    #[test]
    fn values_are_read_in_every_encoding() {
        assert_eq!(read(7, &[2], |t| t.raw = [3i64, -1].map(i64::to_le_bytes).concat()).ints(), Some(&[3, -1][..]));
        assert_eq!(read(7, &[1], |t| t.int64s = vec![0xac, 0x02]).ints(), Some(&[300][..]));
        assert_eq!(read(6, &[], |t| t.raw = 7i32.to_le_bytes().to_vec()).scalar(), Some(7.0));
        assert_eq!(read(1, &[], |t| t.floats = 0.5f32.to_le_bytes().to_vec()).scalar(), Some(0.5));
        assert_eq!(read(10, &[], |t| t.raw = 0x3800u16.to_le_bytes().to_vec()).scalar(), Some(0.5));
        assert_eq!(read(16, &[], |t| t.raw = 0x3f00u16.to_le_bytes().to_vec()).scalar(), Some(0.5));
        assert_eq!(read(10, &[], |t| t.raw = 0xc000u16.to_le_bytes().to_vec()).scalar(), Some(-2.0));
    }

    #[test]
    fn missing_or_surplus_values_are_not_known() {
        assert_eq!(read(7, &[3], |t| t.raw = vec![0; 16]).data, None);
        assert_eq!(read(1, &[1 << 20], |_| {}).data, None);
        let negative = wire::Tensor { dims: vec![-1], ..wire::Tensor::default() };
        assert!(Tensor::from_wire(&negative).is_err());
        let huge = wire::Tensor { dims: vec![1 << 39; 4], ..wire::Tensor::default() };
        assert!(Tensor::from_wire(&huge).is_err());
    }
}
