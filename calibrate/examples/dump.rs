//! dev only
use joulecast_calibrate::fit::{
    polynomial::Options,
    polynomial::fit,
    task::{options_for, tasks},
};
use joulecast_calibrate::rows::{dataset, prepare};
use joulecast_model::net::layer::Layer;
use std::collections::HashMap;
use std::path::Path;
fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let want = args[0].clone();
    let mut ms = Vec::new();
    for d in &args[1..] {
        ms.extend(dataset::read(Path::new(&format!("data/measurements/{d}")))?);
    }
    let by: HashMap<&str, usize> = ms.iter().enumerate().map(|(i, m)| (m.row_id.as_str(), i)).collect();
    let rows = prepare::prepare(&ms)?;
    let tasks = tasks(&rows);
    println!("task;algo;batch;cin;h;cout;kh;kw;stride;groups;pad;comp;mem;t;pred;workspace;cold;layout;board");
    for (t, rows) in tasks.iter().filter(|(t, _)| format!("{t}").contains(&want) && t.framework.is_none()) {
        let f = fit(t.model, rows, &options_for(t, &Options::default())).unwrap();
        for (r, p) in rows.iter().zip(&f.held_out) {
            let m = &ms[by[r.row_id.as_str()]];
            let Layer::Conv2d(c) = &m.case.layer else { continue };
            let (ci, h, _) = m.case.inputs[0].as_map().unwrap();
            println!(
                "{t} {};{};{};{ci};{h};{};{};{};{};{};{};{:.3};{:.3};{:.3};{:.3};{};{:?};{:?};{}",
                r.precision,
                m.algo.clone().unwrap_or_default(),
                m.batch,
                c.channels,
                c.kernel.h,
                c.kernel.w,
                c.stride.h,
                c.groups(ci),
                c.padding.h,
                r.roofline.compute.get() * 1e6,
                r.roofline.memory.get() * 1e6,
                r.time.get() * 1e6,
                p.get() * 1e6,
                0,
                m.cache,
                m.layout,
                r.board
            );
        }
    }
    Ok(())
}
