//! How long GPUs of a node take to exchange values: `[collectives]` of `data/interconnects/*.toml`.

use crate::base::units::{Bytes, BytesPerSecond, Seconds};
use crate::net::share::Collective;

/// A collective's time over n GPUs: launch + hops hop + ramp sqrt(share MB) + share bytes / (bandwidth (2 / n)^crowding). Hops
/// are steps that follow each other, share is how many times the message goes over a GPU's link. The root is what a pipeline
/// of chunks takes besides: with chunks of the best size the time is the square of (sqrt of latency + sqrt of transfer).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// However small and few.
    pub launch: Seconds,
    /// Of each hop.
    pub hop: Seconds,
    /// Of the root of a megabyte (10^6 bytes).
    pub ramp: Seconds,
    /// Of a link of two GPUs.
    pub bandwidth: BytesPerSecond,
    /// By which power of n / 2 that falls with further GPUs.
    pub crowding: f64,
    /// 90 % of measured times lie within this factor.
    pub spread: f64,
}

/// How a message goes around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Around a ring, once for all to have the sums of parts, once for all to have all parts.
    RoundTwice,
    /// Around a ring, or to every other GPU, once.
    RoundOnce,
    /// Every GPU reads all of every other one's message.
    Direct,
}

impl Way {
    /// Hops, and shares of the message.
    fn of(self, gpus: u64) -> (f64, f64) {
        let (n, others) = (gpus.max(1) as f64, gpus.saturating_sub(1) as f64);
        match self {
            Self::RoundTwice => (2.0 * others, 2.0 * others / n),
            Self::RoundOnce => (others, others / n),
            Self::Direct => (others, others),
        }
    }
}

impl Law {
    fn time(&self, way: Way, gpus: u64, bytes: f64) -> Seconds {
        let (hops, share) = way.of(gpus);
        let carried = share * bytes;
        let crowd = (gpus as f64 / 2.0).powf(self.crowding);
        let transfer = Seconds::new(carried * crowd / self.bandwidth.get());
        self.launch + self.hop * hops + self.ramp * (carried / 1e6).sqrt() + transfer
    }
}

/// The collectives that an interconnect was measured with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Collectives {
    /// NCCL's.
    pub all_reduce: Law,
    /// NCCL's.
    pub all_gather: Law,
    /// NCCL's.
    pub reduce_scatter: Law,
    /// NCCL's.
    pub all_to_all: Law,
    /// Sums by kernels of serving frameworks, launched in a CUDA graph: every GPU reads all others' values.
    pub one_shot: Option<Law>,
    /// The same in two steps: every GPU sums a part and reads the others'.
    pub two_shot: Option<Law>,
}

/// What an exchange takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchanging {
    /// As long as that.
    pub time: Seconds,
    /// 90 % of measured times lie within this factor.
    pub spread: f64,
}

impl Collectives {
    /// A collective as serving frameworks run it, over messages of so many bytes: of a sum each GPU's, of what is gathered that of
    /// all, of what is sent the sender's. Sums take the shortest of their ways, as frameworks choose by size. Sending from one
    /// GPU to another was not measured: it is gathering among two. Nothing for one GPU, or for no bytes.
    pub fn serving(&self, kind: Collective, gpus: u64, bytes: Bytes) -> Exchanging {
        if gpus < 2 || bytes == Bytes::ZERO {
            return Exchanging { time: Seconds::ZERO, spread: 1.0 };
        }
        let of = |law: &Law, way: Way, gpus: u64, bytes: f64| Exchanging {
            time: law.time(way, gpus, bytes),
            spread: law.spread,
        };
        let bytes = bytes.to_f64();
        match kind {
            Collective::AllReduce => {
                let ways = [
                    (Some(self.all_reduce), Way::RoundTwice),
                    (self.one_shot, Way::Direct),
                    (self.two_shot, Way::RoundTwice),
                ];
                let times = ways.iter().filter_map(|(law, way)| Some(of(law.as_ref()?, *way, gpus, bytes)));
                let ring = of(&self.all_reduce, Way::RoundTwice, gpus, bytes);
                times.fold(ring, |best, other| if other.time < best.time { other } else { best })
            }
            Collective::AllGather => of(&self.all_gather, Way::RoundOnce, gpus, bytes),
            Collective::ReduceScatter => of(&self.reduce_scatter, Way::RoundOnce, gpus, bytes),
            Collective::AllToAll => of(&self.all_to_all, Way::RoundOnce, gpus, bytes),
            Collective::Send => {
                let sent = of(&self.all_gather, Way::RoundOnce, 2, 2.0 * bytes);
                Exchanging { spread: sent.spread.max(UNMEASURED), ..sent }
            }
        }
    }

    /// Of an interconnect of which only sums of gradients are known: everything goes around the same ring.
    pub fn around_a_ring(launch: Seconds, hop: Seconds, bandwidth: BytesPerSecond, spread: f64) -> Self {
        let law = Law { launch, hop, ramp: Seconds::ZERO, bandwidth, crowding: 0.0, spread: spread.max(UNMEASURED) };
        let [all_reduce, all_gather, reduce_scatter, all_to_all] = [law; 4];
        Self { all_reduce, all_gather, reduce_scatter, all_to_all, one_shot: None, two_shot: None }
    }
}

/// What nobody measured is not known better than by this factor.
const UNMEASURED: f64 = 2.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    fn nvlink4() -> Collectives {
        catalog::interconnect("nvlink4").expect("shipped").collectives.expect("measured")
    }

    /// Rows of the table that the laws were fitted to (NVIDIA AIConfigurator), in microseconds, within twice the mean error.
    #[test]
    fn collectives_take_what_was_measured() {
        let laws = |name: &str| catalog::interconnect(name).expect("shipped").collectives.expect("measured");
        for (name, kind, gpus, bytes, us, within) in [
            ("nvlink4", Collective::AllReduce, 2, 16_384, 2.8, 0.15),
            ("nvlink4", Collective::AllReduce, 8, 131_072, 6.4, 0.15),
            ("nvlink4", Collective::AllReduce, 4, 4_194_304, 29.0, 0.15),
            ("nvlink4", Collective::AllReduce, 8, 536_870_912, 2110.0, 0.1),
            ("nvlink3", Collective::AllReduce, 2, 16_384, 5.3, 0.15),
            ("nvlink5", Collective::AllGather, 8, 268_435_456, 393.0, 0.15),
            ("pcie4", Collective::AllReduce, 8, 4_194_304, 5149.0, 0.3),
            ("pcie4", Collective::AllToAll, 4, 67_108_864, 10_907.0, 0.3),
            ("nvlink4", Collective::ReduceScatter, 2, 67_108_864, 169.0, 0.1),
        ] {
            let time = laws(name).serving(kind, gpus, Bytes::new(bytes)).time.to_us();
            assert!((time / us - 1.0).abs() < within, "{name} {kind} {gpus} {bytes}: {time} us, measured {us}");
        }
    }

    #[test]
    fn more_takes_longer_and_one_gpu_exchanges_nothing() {
        let laws = nvlink4();
        for &kind in Collective::ALL {
            let time = |gpus, bytes| laws.serving(kind, gpus, Bytes::new(bytes)).time;
            assert_eq!((time(1, 1 << 20), time(4, 0)), (Seconds::ZERO, Seconds::ZERO));
            for (less, more) in (8..29).map(|i| (1u64 << i, 1u64 << (i + 1))) {
                assert!(time(4, less) < time(4, more), "{kind} {more}");
            }
        }
        let ring = catalog::interconnect("nvlink2").expect("shipped");
        let bytes = Bytes::new(1 << 24);
        let sums = ring.collectives().serving(Collective::AllReduce, 8, bytes);
        assert!((sums.time / ring.all_reduce(8, bytes) - 1.0).abs() < 1e-12 && sums.spread >= 2.0);
    }
}
