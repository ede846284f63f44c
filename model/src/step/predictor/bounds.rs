//! What a kernel's time cannot be beyond, whatever a polynomial says where no row is.

use super::Setup;
use crate::base::units::Seconds;
use crate::kernel::load::Load;
use crate::kernel::work::Work;
use crate::law::lookup::Found;

/// Beyond what was measured a polynomial may fall as the batch grows: a kernel takes no longer than the same one of 2, 4, 8
/// and so on up to 64 times as many samples.
pub(super) fn as_for_more_samples(own: Seconds, found: &Found<'_>, load: &Load<'_>, setup: &Setup<'_>) -> Seconds {
    let shortest = found.shortest();
    let longer = [2, 4, 8, 16, 32, 64].into_iter().map_while(|times| {
        let work = Work { batch: load.work.batch.checked_mul(times)?, ..load.work.clone() };
        let cost = work.cost().ok()??;
        let bound = shortest.and_then(|log| Some(found.model.reference(&work, cost, setup.gpu)? * log.exp()));
        let time = move || {
            let view = found.model.view(work, cost, setup.gpu, setup.library, setup.calibration)?;
            Some(found.expects(view.seen()).time())
        };
        Some((bound, time))
    });
    least(own, longer)
}

/// The least of a time and of those of ever more samples, each with what it takes whatever its polynomial says: where that is no
/// less already, no later one is less.
fn least(own: Seconds, longer: impl Iterator<Item = (Option<Seconds>, impl FnOnce() -> Option<Seconds>)>) -> Seconds {
    let mut least = own;
    for (bound, time) in longer {
        if bound.is_some_and(|bound| bound >= least) {
            break;
        }
        least = time().map_or(least, |time| least.min(time));
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_samples_are_looked_at_while_they_may_take_less() {
        let us = Seconds::from_us;
        // Bounds that hold, times by a polynomial that falls; the last is beyond what its bound lets through.
        let list = [(4.0, 11.0), (6.0, 7.0), (6.9, 6.95), (7.0, 7.5)];
        let all = list.iter().map(|(_, time)| *time).fold(10.0, f64::min);
        let mut asked = 0;
        let longer = list.into_iter().map(|(bound, time)| (Some(us(bound)), move || Some(us(time))));
        let found = least(us(10.0), longer.inspect(|_| asked += 1));
        assert_eq!((found, asked), (us(all), 4));
        let unbounded = list.into_iter().map(|(_, time)| (None, move || Some(us(time))));
        assert_eq!(least(us(10.0), unbounded), us(all));
        let never = || -> Option<Seconds> { unreachable!("its bound is above") };
        assert_eq!(least(us(10.0), std::iter::once((Some(us(10.0)), never))), us(10.0));
    }
}
