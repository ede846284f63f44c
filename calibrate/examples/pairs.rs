use joulecast_calibrate::rows::{dataset, prepare};
use std::collections::HashMap;
use std::path::Path;
fn main() -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for d in ["h200/layers", "h200/lattice", "h100/layers", "h100/lattice"] {
        rows.extend(dataset::read(Path::new(&format!("data/measurements/{d}")))?);
    }
    let rows = prepare::prepare(&rows)?;
    let mut map: HashMap<&str, &prepare::Row> = HashMap::new();
    for r in rows.iter().filter(|r| r.board == "h200" && r.framework.is_none()) {
        map.insert(&r.trial_id, r);
    }
    println!("model,phase,precision,cold,bytes,comp,mem_b,mem_a,floor,t_a,t_b,second");
    for b in rows.iter().filter(|r| r.board != "h200") {
        let Some(a) = map.get(b.trial_id.as_str()) else { continue };
        let at = |n: &str| a.family.variables().iter().position(|v| *v == n).map_or(0.0, |i| a.variables.values[i]);
        println!(
            "{},{},{},{},{},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4},{:.4}",
            b.model,
            b.phase,
            b.precision,
            at("cold"),
            b.cost.bytes().to_f64(),
            b.roofline.compute.get() * 1e6,
            b.roofline.memory.get() * 1e6,
            a.roofline.memory.get() * 1e6,
            a.floor.get() * 1e6,
            a.time.get() * 1e6,
            b.time.get() * 1e6,
            a.roofline.second.get() * 1e6
        );
    }
    Ok(())
}
