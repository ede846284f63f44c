//! What `predict` answers, asked from Rust: `cargo run -p joulecast-predict --example from_rust`.

use joulecast_predict::ask::{self, Choice, Question, Sweep};
use joulecast_predict::request::{Batch, Team};
use joulecast_predict::{Failure, Request, Session};

/// Asks four questions.
pub fn main() -> Result<(), Failure> {
    // predict --net resnet50 --gpu v100 --batch 64
    let session = Session::new();
    let request = Request::new("resnet50", "v100").batch(64);
    let step = ask::step(&session, &request)?.prediction;
    println!("{:.1} ms, {:.0} W, {:.1} J", step.time.value.to_ms(), step.power.value.get(), step.energy.value.get());

    // predict optimize --net resnet50 --gpu v100 --batch 64 --mode training --framework pytorch
    let training = request.clone().training().through("pytorch");
    let found = ask::optimize(&session, &training, &Choice::default())?;
    let best = &found[0].candidates[found[0].best];
    println!("least energy: {:?}, {:.1} J", best.point, best.prediction.energy.value.get());

    // predict compare --net resnet50 --gpu v100,t4 --batch 1,64
    let teams = ["v100", "t4"].map(|gpu| Team::of(1, gpu)).to_vec();
    let several = Request { teams, batches: [1, 64].map(Batch::Samples).to_vec(), ..request };
    for entry in ask::compare(&session, &several, &Question::default())?.entries {
        println!("{} at batch {}: {:.2} ms", entry.gpu, entry.batch, entry.summary.time.value.to_ms());
    }

    // predict sweep --net resnet50 --gpu v100,t4 --batch 1,64 --threads 2
    let sweep = Sweep::new(&session, &several, &[], vec![several.point])?;
    for row in sweep.all(2)? {
        let joules = row.result.map(|values| values.summary.energy.value.get());
        println!("{} at batch {}: {joules:?}", row.key.gpu, row.key.batch);
    }
    Ok(())
}
