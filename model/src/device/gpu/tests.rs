use super::testing::TEXT;
use super::*;

#[test]
fn multiprocessors_hold_as_many_threads_as_their_compute_capability_says() {
    let of = |name: &str| crate::catalog::gpu(name).expect("shipped").threads_per_sm;
    assert_eq!(["t4", "rtx2080ti", "quadro-rtx6000"].map(of), [1024; 3]);
    assert_eq!(["a10", "l40s", "rtx5090", "jetson-agx-orin"].map(of), [1536; 4]);
    assert_eq!(["v100", "a100", "h100", "h200", "b200", "b300", "mi300x"].map(of), [2048; 7]);
}

#[test]
fn numbers_carry_their_source() -> Result<(), GpuError> {
    let gpu = Gpu::from_toml(TEXT)?;
    assert_eq!(gpu.peak(Precision::Fp16), Some(OpsPerSecond::new(120e12)));
    assert_eq!(gpu.peak(Precision::Bf16), None);
    assert_eq!(gpu.bandwidth.source, "nowhere");
    assert_eq!(gpu.power.idle, None);
    Ok(())
}

#[test]
fn names_and_titles_carry_nothing_but_themselves() -> Result<(), GpuError> {
    let text = TEXT
        .replace("\"Toy GPU\"", "\"\\u001b[31mToy|<b>GPU</b>\\r\\nforged\"")
        .replace("\"nowhere\"", "\"2 * 80 \\u001b]0;x\\u0007\"");
    let gpu = Gpu::from_toml(&text)?;
    assert_eq!((&gpu.title[..], &gpu.bandwidth.source[..]), ("31mToy b GPU /b forged", "2 * 80  ]0;x "));
    let long = TEXT.replace("16 GiB", &"x".repeat(100_000)).replace("T1", &"T".repeat(100_000));
    assert!(Gpu::from_toml(&long).is_err_and(|e| e.to_string().len() < 300));
    let long = TEXT.replace("{ value = 80,", &format!("{{ value = \"{}\",", "x".repeat(100_000)));
    let error = Gpu::from_toml(&long).expect_err("no number").to_string();
    assert!(error.len() < 300 && error.ends_with("expected a whole number of at least 0"), "{error}");
    Ok(())
}

#[test]
fn mistakes_are_named() {
    for (from, to, expected) in [
        ("\"900 GB/s\"", "\"900\"", "memory.bandwidth"),
        ("\"900 GB/s\"", "\"0 GB/s\"", "memory.bandwidth"),
        ("source = \"a\" }\nboost", "source = \"b\" }\nboost", "\"b\""),
        ("fp16 =", "fp12 =", "fp12"),
        ("fp32 =", "tf32 =", "fp32"),
        (
            "[power]\n",
            "[power]\nheld = { value = 1e-320, kind = \"measured\", source = \"a\" }\n",
            "power.held is 1e-320",
        ),
        ("[power]\n", "[power]\ndraw = { value = 6e99, kind = \"measured\", source = \"a\" }\n", "power.draw is 6e99"),
        ("kind = \"vendor\"", "kind = \"rumour\"", "rumour"),
        ("gpu/1", "gpu/9", "gpu/9"),
        ("chip = \"T1\"", "", "chip"),
    ] {
        let error = Gpu::from_toml(&TEXT.replace(from, to)).expect_err(to).to_string();
        assert!(error.contains(expected), "{error:?} should name {expected:?}");
        assert!(!error.contains('\n'), "{error:?} is one line");
    }
}
