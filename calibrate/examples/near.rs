//! dev only: what neighbours' residuals give
use joulecast_calibrate::fit::{
    polynomial::Options,
    polynomial::fit,
    task::{options_for, tasks},
};
use joulecast_calibrate::rows::{dataset, prepare};
use rayon::prelude::*;
use std::collections::HashMap;
use std::path::Path;
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let want = args[0].clone();
    let mut ms = Vec::new();
    for d in &args[1..] {
        ms.extend(dataset::read(Path::new(&format!("data/measurements/{d}")))?);
    }
    let rows = prepare::prepare(&ms)?;
    let tasks = tasks(&rows);
    let list: Vec<_> = tasks.iter().filter(|(t, _)| format!("{t}").contains(&want) && t.framework.is_none()).collect();
    for (t, rows) in list {
        let f = fit(t.model, rows, &options_for(t, &Options::default())).unwrap();
        let keys: Vec<&str> = rows.iter().map(|r| r.key.as_str()).collect();
        let fold = joulecast_calibrate::fit::folds::grouped(&keys, 5, 1);
        let fam = rows[0].family;
        let idx = |n: &str| fam.variables().iter().position(|v| *v == n).unwrap();
        let sizes: Vec<usize> = ["m", "n", "k", "g", "batch", "area", "inner"].iter().map(|n| idx(n)).collect();
        let flags: Vec<usize> = [
            "n8",
            "n32",
            "n64",
            "k8",
            "k32",
            "k64",
            "c1x1",
            "c3x3",
            "large",
            "strided",
            "stem",
            "depthwise",
            "grouped",
            "dilated",
            "nhwc",
            "cold",
            "bf16",
            "stridedim",
            "kernel",
        ]
        .iter()
        .map(|n| idx(n))
        .collect();
        let feat: Vec<Vec<f64>> = rows
            .iter()
            .map(|r| {
                let mut v: Vec<f64> = sizes.iter().map(|&i| r.variables.values[i]).collect();
                v.extend(flags.iter().map(|&i| r.variables.values[i]));
                v
            })
            .collect();
        let res: Vec<f64> = rows.iter().zip(&f.held_out).map(|(r, p)| (r.time.get() / p.get()).ln()).collect();
        let base = 100.0 * rows.iter().zip(&f.held_out).map(|(r, p)| (p.get() / r.time.get() - 1.0).abs()).sum::<f64>()
            / rows.len() as f64;
        print!("{t} n {} base {base:.1}", rows.len());
        for (h, flagw, shrink) in [
            (0.35, 0.5, 1.0),
            (0.5, 0.5, 1.0),
            (0.7, 0.5, 1.0),
            (0.5, 0.2, 1.0),
            (0.5, 1.0, 1.0),
            (0.5, 0.5, 0.3),
            (0.5, 0.5, 3.0),
        ] {
            let err: Vec<f64> = (0..rows.len())
                .into_par_iter()
                .map(|i| {
                    let (mut s, mut w) = (0.0, shrink);
                    for j in 0..rows.len() {
                        if fold[j] == fold[i] {
                            continue;
                        }
                        let mut d = 0.0;
                        for a in 0..feat[i].len() {
                            let x = feat[i][a] - feat[j][a];
                            d += if a < 7 { x * x * if a == 4 || a == 0 { 0.5 } else { 1.0 } } else { flagw * x * x };
                            if d > 9.0 * h * h {
                                break;
                            }
                        }
                        if d > 9.0 * h * h {
                            continue;
                        }
                        let k = (-d / (2.0 * h * h)).exp();
                        s += k * res[j].clamp(-1.0, 1.0);
                        w += k;
                    }
                    let c = s / w;
                    let p = f.held_out[i].get() * c.exp();
                    (p / rows[i].time.get() - 1.0).abs()
                })
                .collect();
            print!(" | h{h} f{flagw} s{shrink}: {:.1}", 100.0 * err.iter().sum::<f64>() / rows.len() as f64);
        }
        println!();
    }
    Ok(())
}
