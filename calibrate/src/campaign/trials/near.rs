//! Shapes near those of networks: a layer that stands in one, with its sizes changed a little. What the next network
//! asks for is seldom a shape that was measured and seldom far from all of them (nn-Meter samples around published
//! networks for that reason; Zhang et al., MobiSys 2021).

use super::point::Point;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Groups, Layer};

/// Channels and features change by up to this factor, up or down.
const SIZE: f64 = 1.6;
/// Height and width by up to this.
const SIDE: f64 = 1.4;
/// An input with fewer channels is an image: the number stays.
const IMAGE: u64 = 4;

/// A neighbour of a layer: window, stride, padding, grouping and rank stay. `None` where its kind has no sizes to
/// change or they do not fit together.
pub fn near(case: &LayerCase, point: &mut Point<'_>) -> Option<LayerCase> {
    let input = *case.inputs.first()?;
    let mut changed = case.clone();
    match &mut changed.layer {
        Layer::Conv2d(conv) => {
            let (channels_in, h, w) = input.as_map()?;
            let groups = conv.groups(channels_in).max(1);
            let depthwise = groups == channels_in && groups > 1;
            let unit = if depthwise { 1 } else { groups };
            let channels =
                if channels_in <= IMAGE { channels_in } else { multiple(point.around(channels_in, SIZE), unit) };
            if depthwise {
                (conv.channels, conv.groups) = (channels, Groups::Depthwise);
            } else {
                conv.channels = multiple(point.around(conv.channels, SIZE), unit);
            }
            let side = point.around_side(h, SIDE);
            // A map that is not square keeps its proportions.
            changed.inputs = vec![Shape::map(channels, side, (side * w).div_ceil(h).max(1)).ok()?];
        }
        Layer::Linear(linear) => {
            let mut dims = input.dims().to_vec();
            *dims.last_mut()? = point.around(input.axis(), SIZE);
            linear.features = point.around(linear.features, SIZE);
            changed.inputs = vec![Shape::new(&dims).ok()?];
        }
        _ => return None,
    }
    changed.output().is_ok().then_some(changed)
}

/// The nearest multiple, at least one.
fn multiple(channels: u64, of: u64) -> u64 {
    (channels + of / 2).max(of) / of * of
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::trials::zoo::Zoo;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn a_neighbour_keeps_the_class_of_the_layer() {
        let zoo = Zoo::read().expect("zoo");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut made = 0;
        for case in zoo.cases.get("conv2d").expect("convolutions") {
            let mut point = Point::anywhere(&mut random);
            let Some(other) = near(case, &mut point) else { continue };
            let (Layer::Conv2d(a), Layer::Conv2d(b)) = (&case.layer, &other.layer) else { unreachable!() };
            assert_eq!((a.kernel, a.stride, a.padding), (b.kernel, b.stride, b.padding));
            let channels = |c: &LayerCase| c.inputs[0].as_map().expect("a map").0;
            let (from, to) = (channels(case), channels(&other));
            assert_eq!(a.groups(from) == from && from > 1, b.groups(to) == to && to > 1, "{other:?}");
            assert!(to as f64 <= from as f64 * 2.0 + 8.0 && to * 2 + 8 >= from, "{from} {to}");
            made += 1;
        }
        assert!(made > 100, "{made}");
    }
}
