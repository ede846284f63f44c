//! How tensors lie on the device: number formats, and the order of a map's values.

use half::{bf16, f16};
use joulecast_model::base::precision::Precision;
use joulecast_model::kernel::setting::Layout;

/// Storage of one tensor on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Storage {
    F32,
    F16,
    Bf16,
    Byte,
}

impl Storage {
    pub fn of(precision: Precision) -> Self {
        match precision {
            Precision::Fp32 | Precision::Tf32 | Precision::Int8 | Precision::Fp8 => Self::F32,
            Precision::Fp16 => Self::F16,
            Precision::Bf16 => Self::Bf16,
        }
    }

    pub fn width(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Byte => 1,
        }
    }

    pub fn round(self, value: f32) -> f32 {
        match self {
            Self::F32 | Self::Byte => value,
            Self::F16 => f16::from_f32(value).to_f32(),
            Self::Bf16 => bf16::from_f32(value).to_f32(),
        }
    }

    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        values
            .iter()
            .flat_map(|v| match self {
                Self::F32 => v.to_le_bytes().to_vec(),
                Self::F16 => f16::from_f32(*v).to_le_bytes().to_vec(),
                Self::Bf16 => bf16::from_f32(*v).to_le_bytes().to_vec(),
                Self::Byte => vec![u8::from(*v != 0.0)],
            })
            .collect()
    }

    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        bytes
            .chunks_exact(self.width())
            .map(|b| match (self, b) {
                (Self::F32, [a, b, c, d]) => f32::from_le_bytes([*a, *b, *c, *d]),
                (Self::F16, [a, b]) => f16::from_le_bytes([*a, *b]).to_f32(),
                (Self::Bf16, [a, b]) => bf16::from_le_bytes([*a, *b]).to_f32(),
                (_, [a, ..]) => f32::from(*a),
                (_, []) => 0.0,
            })
            .collect()
    }
}

/// For each value in the order of the device, its place in the order batch, channels, height, width.
pub(super) fn order(shape: &[u64], batch: u64, layout: Layout) -> Vec<usize> {
    let count = (batch * shape.iter().product::<u64>()) as usize;
    match (shape, layout) {
        (&[c, h, w], Layout::Nhwc) => {
            let (c, area) = (c as usize, (h * w) as usize);
            (0..count)
                .map(|i| {
                    let (sample, rest) = (i / (c * area), i % (c * area));
                    (sample * c + rest % c) * area + rest / c
                })
                .collect()
        }
        _ => (0..count).collect(),
    }
}

/// Values in the device's order.
pub(super) fn permuted(values: &[f32], order: &[usize]) -> Vec<f32> {
    order.iter().map(|i| values.get(*i).copied().unwrap_or(f32::NAN)).collect()
}

/// Values of the device back in the reference's order.
pub(super) fn restored(values: &[f32], order: &[usize]) -> Vec<f32> {
    let mut plain = vec![f32::NAN; order.len()];
    for (value, place) in values.iter().zip(order) {
        if let Some(slot) = plain.get_mut(*place) {
            *slot = *value;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_last_is_a_permutation_and_back() {
        let order = order(&[2, 2, 3], 2, Layout::Nhwc);
        assert_eq!(order[..6], [0, 6, 1, 7, 2, 8]);
        let values: Vec<f32> = (0..24u8).map(f32::from).collect();
        assert_eq!(restored(&permuted(&values, &order), &order), values);
    }

    #[test]
    fn storage_formats_round_and_come_back() {
        for storage in [Storage::F32, Storage::F16, Storage::Bf16] {
            let value = storage.round(0.123_456);
            assert_eq!(storage.decode(&storage.encode(&[value])), [value]);
        }
    }
}
