//! Which GPU of the catalog a device is, and GPUs as they are typed.

use anyhow::{Context, Result, anyhow};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use std::path::Path;

/// A GPU by its name in the catalog or by its file.
///
/// # Errors
/// When there is none, or the file is malformed.
pub fn described(name: &str) -> Result<Gpu> {
    let path = Path::new(name);
    if path.extension().is_none() {
        return Ok(catalog::gpu(name)?);
    }
    let text = std::fs::read_to_string(path).with_context(|| name.to_string())?;
    Gpu::from_toml(&text).with_context(|| name.to_string())
}

/// The GPU that a device counts as: the one asked for, or the one whose name or alias is the product's.
///
/// # Errors
/// When the product is unknown and none is asked for.
pub fn identified(product: &str, asked: Option<&str>) -> Result<Gpu> {
    if let Some(name) = asked {
        return described(name);
    }
    catalog::gpu(product).map_err(|_| {
        anyhow!(
            "no file in data/gpus describes \"{product}\": say which with --gpu NAME, or describe it in a file and give --gpu FILE"
        )
    })
}

/// A GPU of the catalog.
pub fn gpu(text: &str) -> Result<Gpu, String> {
    catalog::gpu(text).map_err(|e| e.to_string())
}

/// The name under which the catalog has a GPU, which may be typed by an alias.
pub fn gpu_name(text: &str) -> Result<String, String> {
    gpu(text).map(|gpu| gpu.name)
}

/// A GPU of the catalog, or a file, which is read later.
pub fn gpu_or_file(text: &str) -> Result<String, String> {
    if Path::new(text).extension().is_none() {
        gpu(text)?;
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_found_by_name_or_alias() {
        for (product, name) in [
            ("NVIDIA H200", "h200"),
            ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
            ("NVIDIA H100 80GB HBM3", "h100-sxm"),
            ("NVIDIA GeForce RTX 3090", "rtx3090"),
            ("NVIDIA B300 SXM6 AC", "b300"),
        ] {
            assert_eq!(identified(product, None).expect(product).name, name);
        }
        assert_eq!(identified("NVIDIA Unheard-of", Some("v100")).expect("asked for").name, "v100");
    }

    #[test]
    fn an_unknown_product_says_what_to_do() {
        let error = identified("NVIDIA H2000", None).expect_err("unknown").to_string();
        assert!(error.contains("NVIDIA H2000") && error.contains("--gpu"), "{error}");
    }
}
