//! Every network of the zoo against what others counted, and castro2018's Table 1.

use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::net::counting::castro_total;
use joulecast_model::net::network::ShapedNetwork;

fn shaped(name: &str) -> ShapedNetwork {
    let network = catalog::network(name).unwrap_or_else(|e| panic!("{e}"));
    ShapedNetwork::new(&network, 1, Precision::Fp32, &[]).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn parameters_and_macs_equal_the_published_figures() {
    for name in catalog::network_names() {
        let network = catalog::network(name).unwrap_or_else(|e| panic!("{e}"));
        let published = &network.published;
        let net = shaped(name);
        let parameters = published.parameters.unwrap_or_else(|| panic!("{name}: no published parameters"));
        assert_eq!(net.parameters(), parameters, "{name}: parameters");
        let macs = published.macs.unwrap_or_else(|| panic!("{name}: no published MACs"));
        let error = net.macs() as f64 / macs - 1.0;
        assert!(error.abs() <= 0.01, "{name}: {} MACs, published {macs}: {:+.2} %", net.macs(), 100.0 * error);
        for source in [&published.parameters_source, &published.macs_source] {
            assert!(source.as_ref().is_some_and(|s| s.len() > 10), "{name}: a figure without a source");
        }
    }
}

/// The book says of how many networks a count is published that ours equals; of the others it was counted from layer lists.
#[test]
fn the_book_says_how_many_counts_are_published() {
    let counted = |source: &str| source.starts_with("none published") || source.starts_with("Castro et al. 2018");
    let published = catalog::network_names()
        .filter_map(|name| catalog::network(name).unwrap_or_else(|e| panic!("{e}")).published.parameters_source)
        .filter(|source| !counted(source))
        .count();
    let chapter = include_str!("../reports/book/src/models.md");
    let said = chapter.split("**The zoo**: parameters of ").nth(1).and_then(|rest| rest.split(" equal").next());
    let said: Vec<usize> =
        said.into_iter().flat_map(str::split_whitespace).filter_map(|word| word.parse().ok()).collect();
    let [equal, of] = said[..] else { panic!("the book says {said:?}") };
    // A network that was added since is no mistake.
    let all = catalog::network_names().count();
    assert!(equal <= published && of <= all, "{equal} of {of}: {published} of {all}");
}

/// An error is what its source's accuracy leaves of 100 %.
#[test]
fn published_errors_are_those_of_their_sources() {
    let mut known = 0;
    for name in catalog::network_names() {
        let published = catalog::network(name).unwrap_or_else(|e| panic!("{e}")).published;
        let Some(error) = published.top1_error else { continue };
        let source = published.top1_error_source.unwrap_or_else(|| panic!("{name}: an error without a source"));
        let accuracy = format!("acc@1 = {:.3} %", 100.0 * (1.0 - error));
        assert!(source.contains(&accuracy), "{name}: {accuracy} is not in its source: {source}");
        known += 1;
    }
    assert!(known >= 38, "{known} networks with a published error");
}

#[test]
fn every_network_has_its_name() {
    for name in catalog::network_names() {
        let network = catalog::network(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(network.name, name, "the file's name");
    }
}

#[test]
fn every_device_reads_and_its_peak_follows_from_its_units() {
    for name in catalog::gpu_names() {
        let gpu = catalog::gpu(name).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(gpu.name, name, "the file's name");
        let lanes = gpu.sms.value as f64 * gpu.cores_per_sm.value as f64;
        let computed = 2.0 * lanes * gpu.core_clock.boost.value.get();
        let stated = gpu.vector_peak().get();
        assert!((computed / stated - 1.0).abs() < 0.02, "{name}: fp32 peak {stated:e}, units say {computed:e}");
    }
}

/// Table 1 of castro2018, to the printed digit: operations (10^6), read and written (MB of 2^20 bytes), CTC.
/// ResNetIm has no reading that meets it; its residuals are those the notes to the table give.
#[test]
fn castro2018_table_1() {
    for (name, printed, computed) in [
        ("gait_resnet", ["425.13", "87.6", "4.8", "18.5"], ["425.13", "87.6", "4.8", "18.5"]),
        ("gait_cnn2d", ["783.84", "73.8", "1.9", "40.5"], ["783.84", "73.8", "1.9", "40.5"]),
        ("caffenet", ["727.20", "239.1", "6.0", "11.6"], ["727.20", "239.1", "6.0", "11.6"]),
        ("castro_resnetim", ["2080.96", "97.1", "46.6", "81.8"], ["2080.19", "97.7", "46.0", "81.2"]),
    ] {
        let count = castro_total(&shaped(name));
        let row = [
            format!("{:.2}", count.ops as f64 / 1e6),
            format!("{:.1}", count.read_mb()),
            format!("{:.1}", count.written_mb()),
            format!("{:.1}", count.ctc()),
        ];
        assert_eq!(row, computed, "{name}, printed {printed:?}");
    }
}
