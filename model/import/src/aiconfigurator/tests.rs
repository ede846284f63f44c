use super::*;

fn all(_: &str, _: Precision) -> bool {
    true
}

fn product(framework: &'static str, m: i64, time_us: f64) -> Product<'static> {
    Product { gpu: "h200_sxm", framework, dtype: "bfloat16", mnk: [m, 96, 64], time_us }
}

#[test]
fn a_product_is_a_linear_layer_with_the_median_over_frameworks() {
    let rows = [product("vllm", 8, 7.0), product("sglang", 8, 3.0), product("trtllm", 8, 4.0), product("vllm", 1, 5.0)];
    let imported = products(rows.into_iter(), &all);
    let row = &imported.rows[1];
    assert_eq!((row.gpu.as_str(), row.batch, row.precision), ("h200", 8, Precision::Bf16));
    assert_eq!(row.case.inputs, [Shape::new(&[64]).expect("a shape")]);
    assert!(matches!(row.case.layer, Layer::Linear(Linear { features: 96, bias: false })));
    assert!((row.time_s - 4e-6).abs() < 1e-12);
    assert_eq!((row.time_p10_s, row.time_p90_s, row.n), (Some(3e-6), Some(7e-6), Some(3)));
    assert_eq!(row.work().map(|w| w.cache), Ok(Cache::Hot));
    let alone = &imported.rows[0];
    assert_eq!((alone.batch, alone.time_p10_s, alone.n), (1, None, Some(1)));
    assert!(row.usable() && alone.usable());
    assert_eq!(row.case.fold_key(), alone.case.fold_key(), "all m of an (n, k) are in one fold");
}

#[test]
fn of_two_frameworks_the_mean_is_taken() {
    let imported = products([product("vllm", 8, 7.0), product("sglang", 8, 3.0)].into_iter(), &all);
    assert!((imported.rows[0].time_s - 5e-6).abs() < 1e-12);
}

#[test]
fn what_is_left_out_is_counted_by_reason() {
    let good = product("vllm", 8, 7.0);
    let rows = [
        good,
        Product { gpu: "riva128", ..good },
        Product { gpu: "l40s", ..good },
        Product { dtype: "sq", ..good },
        Product { mnk: [0, 96, 64], ..good },
        Product { mnk: [8, -1, 64], ..good },
        Product { time_us: f64::NAN, ..good },
        Product { mnk: [40, 96, 64], ..good },
    ];
    let imported = products(rows.into_iter(), &|gpu, _| gpu != "l40s");
    assert_eq!(imported.rows.len(), 1);
    let reasons: Vec<(&str, usize)> = imported.skipped.iter().map(|(r, n)| (r.as_str(), *n)).collect();
    let expected = [
        ("m, n or k is not a whole number from 1", 2),
        ("off the grid of sizes", 1),
        ("products in \"sq\"", 1),
        ("the catalogue has no l40s with bf16", 1),
        ("time_us is not a time", 1),
        ("unknown device \"riva128\"", 1),
    ];
    assert_eq!(reasons, expected);
}

#[test]
fn the_grid_holds_powers_of_two_three_times_these_and_one_more_than_a_tile() {
    let on: Vec<u64> = (1..=260).filter(|&m| thin::on_grid(m)).collect();
    assert_eq!(on, [1, 2, 3, 4, 6, 8, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 192, 256, 257]);
}

#[test]
fn thinning_keeps_every_shape_and_every_size_evenly_whatever_the_times() {
    let rows = |time: f64| {
        (0..1000i64).flat_map(move |pair| {
            (0..15u32).map(move |power| Product {
                mnk: [1 << power, 8 + pair, 16],
                ..product("vllm", 1, time * (1.0 + pair as f64))
            })
        })
    };
    let imported = products(rows(1.0), &all);
    let shape = |m: &Measurement| (m.case.fold_key(), m.batch);
    let shapes: Vec<_> = imported.rows.iter().map(shape).collect();
    assert_eq!(shapes, products(rows(7.0), &all).rows.iter().map(shape).collect::<Vec<_>>());
    assert!((3000..=thin::PRODUCTS).contains(&shapes.len()), "{}", shapes.len());
    let mut by_size: BTreeMap<u64, usize> = BTreeMap::new();
    let mut by_pair: BTreeMap<&str, usize> = BTreeMap::new();
    for (pair, size) in &shapes {
        *by_size.entry(*size).or_default() += 1;
        *by_pair.entry(pair).or_default() += 1;
    }
    assert!(by_size.len() == 15 && by_size.values().all(|n| n.abs_diff(250) <= 1), "{by_size:?}");
    assert!(by_pair.len() == 1000 && by_pair.values().all(|n| (3..=4).contains(n)));
    assert_eq!(imported.skipped.values().sum::<usize>() + shapes.len(), 15_000);
}

fn attends(dtypes: [&'static str; 2], tokens: i64, window: i64) -> Attention<'static> {
    let (gpu, framework) = ("a100_sxm", "sglang");
    Attention { gpu, framework, dtypes, batch: 4, tokens, heads: [8, 2, 64], window, time_us: 20.0 }
}

#[test]
fn prompts_and_steps_are_attention_with_grouped_heads() {
    const BF16: [&str; 2] = ["bfloat16"; 2];
    let rows =
        [attends(BF16, 128, 0), attends(BF16, 1, 0), attends(BF16, 128, 1024), attends(["bfloat16", "fp8"], 128, 0)];
    let prompts = attention(rows.into_iter(), false, &all);
    let steps = attention(rows.into_iter(), true, &all);
    assert_eq!((prompts.rows.len(), steps.rows.len()), (2, 1));
    assert_eq!(prompts.skipped.len(), 2);
    assert_eq!(steps.skipped.get("a step against an empty cache"), Some(&1));
    let sizes = |m: &Measurement| match &m.case.layer {
        Layer::Attention(a) => a.sizes(&m.case.inputs).expect("fits"),
        other => panic!("{}", other.kind()),
    };
    let (prompt, step) = (sizes(&prompts.rows[1]), sizes(&steps.rows[0]));
    assert_eq!((prompt.tokens, prompt.keys, prompt.heads, prompt.kv_heads, prompt.dimension), (128, 128, 8, 2, 64));
    assert_eq!((step.tokens, step.keys), (1, 128));
    assert_eq!(steps.rows[0].batch, 4);
}

#[test]
fn experts_are_one_token_a_sample_and_divided_in_what_they_hold() {
    let row = Experts {
        gpu: "h100_sxm",
        framework: "vllm",
        kernel: "vllm_fused_moe",
        dtype: "bfloat16",
        distribution: "power_law_1.01",
        tokens: 16,
        features: [2048, 768],
        experts: [8, 128],
        among: [2, 1],
        time_us: 50.0,
    };
    let rows = [
        row,
        Experts { framework: "sglang", time_us: 70.0, ..row },
        Experts { dtype: "fp8", ..row },
        Experts { dtype: "fp8_block", time_us: 30.0, ..row },
        Experts { dtype: "int4_wo", ..row },
        Experts { distribution: "balanced", ..row },
        Experts { among: [1, 8], ..row },
        Experts { among: [5, 1], ..row },
        Experts { kernel: "moe_torch_flow_nongated", ..row },
        Experts { experts: [0, 128], ..row },
        Experts { experts: [129, 128], ..row },
        Experts { tokens: 80, ..row },
    ];
    let imported = experts(rows.into_iter(), &all);
    assert_eq!(imported.rows.len(), 2, "{:?}", imported.skipped);
    assert_eq!(imported.skipped.values().sum::<usize>(), 8, "{:?}", imported.skipped);
    let found = &imported.rows[0];
    assert_eq!((found.batch, found.precision, found.n), (16, Precision::Bf16, Some(2)));
    assert!((found.time_s - 6e-5).abs() < 1e-12);
    let Layer::Experts(layer) = &found.case.layer else { panic!("{}", found.case.layer.kind()) };
    assert_eq!((layer.experts, layer.active, layer.hidden, layer.gated), (128, 8, 384, true));
    assert_eq!(found.case.inputs, [[1, 2048], [1, 128]].map(|dims| Shape::new(&dims).expect("a shape")));
    let fp8 = &imported.rows[1];
    assert_eq!((fp8.precision, fp8.n), (Precision::Fp8, Some(2)));
    assert!((fp8.time_s - 4e-5).abs() < 1e-12);
}

#[test]
fn what_nobody_would_run_in_8_bits_is_left_out() {
    let at = |framework, kernel, dtype, tokens, time_us| Experts {
        gpu: "h100_sxm",
        framework,
        kernel,
        dtype,
        distribution: "power_law_1.01",
        tokens,
        features: [2048, 768],
        experts: [8, 128],
        among: [1, 1],
        time_us,
    };
    let sizes = [1i64, 2, 4, 8, 16];
    let rows = sizes.iter().flat_map(|&tokens| {
        let bf16 = 50.0 + tokens as f64;
        // Slow for three sizes of five; fast but for one.
        let slow = if tokens < 3 { 0.9 } else { 1.2 };
        let fast = if tokens == 4 { 2.1 } else { 0.6 };
        [
            at("trtllm", "usual", "bfloat16", tokens, bf16),
            at("sglang", "usual", "bfloat16", tokens, 3.0 * bf16),
            at("vllm", "slow", "fp8", tokens, slow * bf16),
            at("vllm", "fast", "fp8", tokens, fast * bf16),
            at("sglang", "block", "fp8_block", tokens, 0.7 * bf16),
            at("sglang", "slow", "fp8_block", tokens, 0.8 * bf16),
        ]
    });
    // Where nobody ran bf16 the kernel's other shapes speak for it.
    let rows = rows.chain([at("vllm", "slow", "fp8", 32, 1.0), at("vllm", "fast", "fp8", 32, 1.0)]);
    let imported = experts(rows, &all);
    let skipped: Vec<(&str, usize)> = imported.skipped.iter().map(|(r, n)| (r.as_str(), *n)).collect();
    let expected = [
        ("kernels in 8 bits that take longer than bf16 for most shapes", 6),
        ("twice as long in 8 bits as in bf16", 1),
    ];
    assert_eq!(skipped, expected);
    let of = |precision, size| {
        let row = imported.rows.iter().find(|r| r.precision == precision && r.batch == size).expect("there");
        (row.n, (row.time_s * 1e9).round())
    };
    // Of bf16 the slow kernel stays: it is what an engine runs.
    assert_eq!(of(Precision::Bf16, 1), (Some(2), 102e3));
    assert_eq!(of(Precision::Fp8, 1), (Some(3), (0.7f64 * 51e3).round()));
    assert_eq!(of(Precision::Fp8, 4), (Some(2), (0.75f64 * 54e3).round()));
    assert_eq!(of(Precision::Fp8, 32).0, Some(1));
}
