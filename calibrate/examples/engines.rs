//! dev only: residuals by engine
use joulecast_calibrate::fit::{
    polynomial::Options,
    polynomial::fit,
    task::{options_for, tasks},
};
use joulecast_calibrate::rows::{dataset, prepare};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let want = args[0].clone();
    let mut ms = Vec::new();
    for d in &args[1..] {
        ms.extend(dataset::read(Path::new(&format!("data/measurements/{d}")))?);
    }
    let algo: HashMap<String, String> =
        ms.iter().map(|m| (m.row_id.clone(), m.algo.clone().unwrap_or_default())).collect();
    let rows = prepare::prepare(&ms)?;
    let tasks = tasks(&rows);
    for (t, rows) in tasks.iter().filter(|(t, _)| format!("{t}").contains(&want) && t.framework.is_none()) {
        let f = fit(t.model, rows, &options_for(t, &Options::default())).unwrap();
        let mut g: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (r, p) in rows.iter().zip(&f.held_out) {
            let a = &algo[&r.row_id];
            let k = a.split(|c: char| c == ',' || c == ' ').next().unwrap_or("").to_string();
            g.entry(k).or_default().push(((r.time.get() / p.get()).ln(), r.time.get()));
        }
        println!("{t}: mape {:.1}", f.model.cross_validation.mape);
        let mut list: Vec<_> = g.into_iter().collect();
        list.sort_by_key(|x| std::cmp::Reverse(x.1.len()));
        for (k, mut v) in list.into_iter().take(14) {
            v.sort_by(|a, b| a.0.total_cmp(&b.0));
            let n = v.len();
            println!(
                "   {k:<44} n {n:>5} median {:+.2} p10 {:+.2} p90 {:+.2}",
                v[n / 2].0,
                v[n / 10].0,
                v[n * 9 / 10].0
            );
        }
    }
    Ok(())
}
