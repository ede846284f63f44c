//! Tables that papers printed, and predictions of what they hold: `data/published/papers`.
//!
//! A paper is a file of printed values (one per line, in its own names) and an entry in `papers.toml`, which says what
//! the names mean here. Further papers, and rows that become predictable, need no code.

mod beside;
mod compare;
mod error;
mod line;
mod mapping;
mod printed;
mod setups;
mod subject;
mod unknown;

pub use beside::{Compared, Comparison, NotPredicted, Options};
pub use compare::compare;
pub use error::PaperError;
pub use line::{Case, Line, lines};
pub use mapping::{Metric, Paper, Quantity};
pub use setups::{METRICS, SetupTotals, Totals, Winner, totals, winners};

use joulecast_data::{PAPERS, PAPERS_MAPPING};

/// The shipped papers, with the texts of their files of values.
///
/// # Errors
/// One line that names the file and the line that is wrong: a defect of the build.
pub fn shipped() -> Result<Vec<(Paper, &'static str)>, PaperError> {
    let papers = mapping::from_toml(PAPERS_MAPPING).map_err(PaperError::Mapping)?;
    let with_values = |paper: Paper| {
        let text = PAPERS.iter().find(|(name, _)| *name == paper.key).map(|(_, text)| *text);
        let text = text.ok_or_else(|| PaperError::NoValues(paper.key.clone()))?;
        Ok((paper, text))
    };
    papers.into_iter().map(with_values).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn all(options: &Options<'_>) -> Vec<(Paper, usize, Comparison)> {
        let values = |text: &str| {
            csv::Reader::from_reader(text.as_bytes()).into_records().flatten().filter(|r| !r[15].is_empty()).count()
        };
        let one = |(paper, text): (Paper, &str)| {
            let comparison = compare(&paper, text, options).expect("the shipped papers compare");
            (paper, values(text), comparison)
        };
        shipped().expect("the shipped papers are readable").into_iter().map(one).collect()
    }

    /// Every printed value is predicted once per reading, or counted with the reason why it is not.
    #[test]
    fn no_value_is_lost() {
        for (paper, values, comparison) in all(&Options::default()) {
            let mut once: BTreeMap<&str, usize> = BTreeMap::new();
            comparison.rows.iter().for_each(|row| *once.entry(&row.reading).or_default() += 1);
            let predicted = once.values().copied().max().unwrap_or(0);
            assert!(once.values().all(|count| *count == predicted), "{}: {once:?}", paper.key);
            let others: usize = comparison.not_predicted.iter().map(|n| n.values).sum();
            assert_eq!(predicted + others, values, "{}", paper.key);
        }
    }

    /// Values that the notes on the paper call contradictory are marked, their neighbours are not.
    #[test]
    fn contradictory_values_are_marked() {
        let papers = shipped().expect("readable");
        let (paper, text) = papers.iter().find(|(p, _)| p.key == "castro2018").expect("shipped");
        let rows = compare(paper, text, &Options::default()).expect("compares").rows;
        let find = |gpu: &str, network: &str, phase: &str, batch: u64, quantity: Quantity| {
            let fits = |r: &&Compared| {
                r.gpu == gpu && r.network == network && r.phase == phase && r.batch == batch && r.quantity == quantity
            };
            rows.iter().find(fits).expect("printed").distorted.clone()
        };
        let energy = find("titan-x-pascal", "2D-CNN", "forward", 128, Quantity::Energy);
        assert_eq!(energy.as_deref(), Some("energy over time is 287 W, printed power 240 W"));
        assert!(find("titan-x-pascal", "2D-CNN", "forward", 128, Quantity::Time).is_none());
        assert!(find("titan-x-pascal", "ResNet", "backward", 128, Quantity::Time).is_some());
        assert!(find("titan-x-pascal", "ResNet", "forward", 128, Quantity::Time).is_none());
        assert!(find("titan-x-maxwell", "CaffeNet", "backward", 128, Quantity::Energy).is_none());
    }

    /// castro2018 derives Table 6 from Tables 4, 5 and 8: 2D-CNN, batch 64 on two Pascals, and ResNetIm, 64, on all four.
    #[test]
    fn sums_over_devices_are_those_that_the_paper_derives() {
        let papers = shipped().expect("readable");
        let (paper, text) = papers.iter().find(|(p, _)| p.key == "castro2018").expect("shipped");
        let rows = compare(paper, text, &Options::default()).expect("compares").rows;
        let totals = totals(&rows);
        let of = |network: &str, setup: &str| {
            let found = totals.iter().find(|t| t.network == network && t.setup == setup && t.batch == 64);
            found.expect("printed").printed
        };
        let two = of("2D-CNN", "2xtitan-x-pascal");
        assert!((two.time - 0.026).abs() < 1e-12 && (two.energy - 2.0 * (1.754 + 3.251)).abs() < 1e-12, "{two:?}");
        let four = of("ResNetIm", "2xtitan-x-maxwell,2xtitan-x-pascal");
        assert!((four.time - 0.132).abs() < 1e-12, "{four:?}");
        assert!((four.energy - 2.0 * (4.692 + 14.824 + 6.043 + 15.104)).abs() < 1e-12, "{four:?}");
        let printed: Vec<Winner> = winners(&totals).into_iter().filter(|w| w.reading == "text").collect();
        assert_eq!(printed.len(), 3 * 12);
        let fastest = printed.iter().find(|w| w.network == "CaffeNet" && w.batch == 64 && w.metric == "time");
        assert_eq!(fastest.map(|w| w.printed.as_str()), Some("1xtitan-x-pascal"));
    }

    /// thesis2018 prints means over two boards; a network may be another one in a framework, and a batch that is not printed
    /// fits in the smallest memory.
    #[test]
    fn a_paper_means_what_its_mapping_says() {
        let papers = shipped().expect("readable");
        let (paper, text) = papers.iter().find(|(p, _)| p.key == "thesis2018").expect("shipped");
        let rows = compare(paper, text, &Options::default()).expect("compares").rows;
        let alone = Paper { boards: 1, ..paper.clone() };
        let other = compare(&alone, text, &Options::default()).expect("compares").rows;
        // Batches are told by memory, hence by boards.
        let alike: Vec<_> = rows.iter().zip(&other).filter(|(mean, own)| mean.batch == own.batch).collect();
        assert!(alike.len() > 50, "{}", alike.len());
        for (mean, own) in alike {
            let on_gpu = mean.gpus == 1 && !mean.gpu.starts_with("xeon");
            match mean.quantity {
                Quantity::Memory if on_gpu => assert!((own.predicted / mean.predicted - 2.0).abs() < 1e-9),
                Quantity::Power if on_gpu => assert!(mean.predicted < own.predicted, "{mean:?}"),
                Quantity::Time => assert_eq!(mean.predicted, own.predicted),
                _ if mean.gpus == 2 => assert_eq!(mean.predicted, own.predicted),
                _ => {}
            }
        }
        let alexnet: std::collections::BTreeSet<(&str, &str)> = rows
            .iter()
            .filter(|r| r.network == "AlexNet" && r.net != "alexnet_cifar10")
            .map(|r| (r.framework.as_str(), r.net.as_str()))
            .collect();
        assert!(alexnet.contains(&("caffe", "alexnet_bvlc")) && alexnet.contains(&("pytorch", "alexnet")));
        assert!(rows.iter().filter(|r| r.net == "vgg16").all(|r| r.batch <= 32));
    }

    /// The start of a program is in the time of a run, and what it was fitted to is no test.
    #[test]
    fn runs_start() {
        let papers = shipped().expect("readable");
        let (paper, text) = papers.iter().find(|(p, _)| p.key == "krzywaniak2022").expect("shipped");
        let of = |framework| {
            let options = Options { framework, ..Options::default() };
            compare(paper, text, &options).expect("compares").rows
        };
        let (with, without) = (of(None), of(Some("cudnn")));
        // Its boards' constants are fitted to the power of all networks.
        assert!(with.iter().all(|r| r.fitted == (r.network == "Alexnet" || r.quantity != Quantity::Time)));
        let spread = |rows: &[Compared]| {
            let row = rows.iter().find(|r| r.net == "alexnet" && r.gpu == "v100" && r.quantity == Quantity::Time);
            row.expect("printed").predicted
        };
        assert!(spread(&with) - spread(&without) > 0.9 * 17.0 * 128.0 / 100_000.0);
    }

    /// Rates become times of a step: nvidia2015 prints 3216 images per second at batch 128.
    #[test]
    fn rates_become_times() {
        let papers = shipped().expect("readable");
        let (paper, text) = papers.iter().find(|(p, _)| p.key == "nvidia2015").expect("shipped");
        let rows = compare(paper, text, &Options::default()).expect("compares").rows;
        let row = rows
            .iter()
            .find(|r| r.batch == 128 && r.network == "AlexNet" && r.gpu == "titan-x-maxwell")
            .expect("printed");
        assert_eq!(row.quantity, Quantity::Time);
        assert!((row.printed - 128.0 / 3216.0).abs() < 1e-12);
        assert_eq!(
            (row.net.as_str(), row.framework.as_str(), row.cudnn.as_deref()),
            ("alexnet_bvlc", "caffe", Some("4"))
        );
    }

    #[test]
    fn a_wrong_line_of_values_is_named() {
        let papers = shipped().expect("readable");
        let (paper, text) = papers.iter().find(|(p, _)| p.key == "nvidia2015").expect("shipped");
        for (from, to, expected) in [
            (",throughput,img/sec,47,", ",speed,img/sec,47,", "nvidia2015.csv: line 2: metric \"speed\""),
            (",throughput,img/sec,47,", ",throughput,km/h,47,", "nvidia2015.csv: line 2: unit \"km/h\""),
            (",throughput,img/sec,47,", ",throughput,img/sec,-47,", "nvidia2015.csv: line 2: -47 is not above 0"),
            (",throughput,img/sec,47,", ",throughput,img/sec,x,", "nvidia2015.csv: line 2:"),
        ] {
            let error = compare(paper, &text.replacen(from, to, 1), &Options::default()).expect_err("a wrong line");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
