//! dev only
use joulecast_calibrate::fit::{
    polynomial::Options,
    polynomial::fit,
    task::{options_for, tasks},
};
use joulecast_calibrate::rows::{dataset, prepare};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let want = args[0].clone();
    let mut rows = Vec::new();
    let mut lattice = std::collections::HashSet::new();
    for d in &args[1..] {
        let part = dataset::read(Path::new(&format!("data/measurements/{d}")))?;
        if d.contains("lattice") {
            lattice.extend(part.iter().map(|r| r.row_id.clone()));
        }
        rows.extend(part);
    }
    let rows = prepare::prepare(&rows)?;
    let tasks = tasks(&rows);
    let list: Vec<_> = tasks.iter().filter(|(t, _)| format!("{t}").contains(&want) && t.framework.is_none()).collect();
    let out: Vec<_> = list
        .par_iter()
        .map(|(t, rows)| {
            let o = Options {
                most_terms: std::env::var("TERMS").ok().and_then(|v| v.parse().ok()).unwrap_or(80),
                standard_errors: std::env::var("SE").ok().and_then(|v| v.parse().ok()).unwrap_or(1.0),
                ..Options::default()
            };
            let f = fit(t.model, rows, &options_for(t, &o)).unwrap();
            let mut groups: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            for (r, p) in rows.iter().zip(&f.held_out) {
                let e = (*p / r.time - 1.0).abs();
                let l = lattice.contains(&r.row_id);
                for g in [
                    format!("{} all", r.board),
                    format!("{} {}", r.board, if l { "lattice" } else { "others" }),
                    format!(
                        "{} {} {}",
                        r.board,
                        if l { "lattice" } else { "others" },
                        if r.time.get() > 20e-6 { ">20" } else { "<20" }
                    ),
                ] {
                    groups.entry(g).or_default().push(e);
                }
            }
            (format!("{t}"), f.model.terms.len(), f.model.exponent, groups)
        })
        .collect();
    for (t, n, p, groups) in out {
        println!("{t} terms {n} p {p}");
        for (g, mut e) in groups {
            e.sort_by(f64::total_cmp);
            println!(
                "    {g:<28} n {:>6} mape {:5.1} median {:5.1}",
                e.len(),
                100.0 * e.iter().sum::<f64>() / e.len() as f64,
                100.0 * e[e.len() / 2]
            );
        }
    }
    Ok(())
}
