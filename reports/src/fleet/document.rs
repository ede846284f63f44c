//! A plan as `capacity_plan/1` and as rows.

use super::services;
use super::values::{AtSetting, Candidate, FIGURES, Figure, OF_PARTS, OF_POOLS, Plan, Value, begin};
use joulecast_ask::capacity::{Change, Fleet};
use joulecast_model::base::units::Hertz;

impl AtSetting {
    fn figures(&self) -> serde_json::Map<String, serde_json::Value> {
        if self.value.is_none() {
            return serde_json::Map::new();
        }
        let json = |of: Value| serde_json::to_value(self.figure(|f| Some(of(f)))).unwrap_or_default();
        FIGURES.iter().map(|(name, of)| (name.to_string(), json(*of))).collect()
    }

    /// A value under its name, its ends beside it.
    pub(super) fn insert(map: &mut serde_json::Map<String, serde_json::Value>, name: &str, figure: Figure) {
        for (suffix, value) in [("", figure.value), ("_p05", figure.p05), ("_p95", figure.p95)] {
            map.insert(format!("{name}{suffix}"), value.into());
        }
    }

    fn pools(&self, plan: &Plan) -> Option<Vec<serde_json::Value>> {
        let fleet = self.value.as_ref()?;
        let each = fleet.pools.iter().zip(&plan.file.networks).enumerate().map(|(i, ((_, limit), network))| {
            let mut map = serde_json::Map::new();
            map.insert("network".into(), network.net.as_str().into());
            map.insert("share".into(), network.share.into());
            OF_POOLS.iter().for_each(|(name, of)| Self::insert(&mut map, name, self.pool(i, of)));
            map.insert("binding".into(), limit.to_string().into());
            map.into()
        });
        Some(each.collect())
    }

    fn day(&self) -> Option<Vec<serde_json::Value>> {
        let fleet = self.value.as_ref()?;
        let each = fleet.day.iter().enumerate().map(|(i, part)| {
            let mut map = serde_json::Map::new();
            map.insert("from_h".into(), begin(i, fleet.day.len()).into());
            map.insert("requests_per_s".into(), part.rate_per_s.into());
            map.insert("batches".into(), part.batches.clone().into());
            OF_PARTS.iter().for_each(|(name, of)| Self::insert(&mut map, name, self.part(i, of)));
            map.into()
        });
        Some(each.collect())
    }
}

/// Every figure with its interval; what is not known is null.
pub(super) fn document(plan: &Plan) -> serde_json::Value {
    let option = |c: &Candidate, o: &AtSetting, taken: bool| {
        let fleet = o.value.as_ref();
        let mut option = serde_json::json!({
            "power_cap_w": o.cap.get(), "clock_mhz": o.clock.map(Hertz::to_mhz), "chosen": taken, "figures": o.figures(),
            "racks": fleet.and_then(|f| f.racks), "racks_p05": o.racks().p05, "racks_p95": o.racks().p95,
            "within_site": fleet.map(|f| plan.file.site.site.is_none_or(|s| f.facility_peak <= s)),
            "embodied_included": fleet.map(|f| f.embodied_g_per_year.is_some()),
            "binding": fleet.map(|f| c.binding(plan, f)), "pools": o.pools(plan),
        });
        if !plan.file.languages.is_empty() {
            option["services"] = services::json(plan, o).into();
        }
        option
    };
    let change = |base: &Fleet, change: &Change| {
        let ratios = |f: &Option<Fleet>| {
            f.as_ref().map(|f| {
                serde_json::json!({
                    "gpus": f.gpus as f64 / base.gpus as f64, "facility_peak": f.facility_peak / base.facility_peak,
                    "cost": f.cost_per_year / base.cost_per_year,
                    "carbon": f.carbon_g_per_year() / base.carbon_g_per_year(),
                })
            })
        };
        serde_json::json!({
            "input": change.input.to_string(), "with_10_percent_less": ratios(&change.less),
            "with_10_percent_more": ratios(&change.more),
        })
    };
    let candidate = |c: &Candidate| {
        let base = c.taken().and_then(|o| o.value.as_ref());
        serde_json::json!({
            "name": c.name, "gpu": c.gpu, "reason": c.reason, "waiting_w": c.waiting.0.get(), "rests_on": c.rests_on, "warnings": c.warnings, "surer": c.surer,
            "options": c.options.iter().enumerate().map(|(i, o)| option(c, o, c.chosen == Some(i))).collect::<Vec<_>>(),
            "day": c.taken().and_then(AtSetting::day),
            "sensitivity": base.map(|b| c.sensitivity.iter().map(|s| change(b, s)).collect::<Vec<_>>()),
        })
    };
    serde_json::json!({
        "schema": "capacity_plan/1", "title": plan.file.title, "currency": plan.file.currency,
        "minimise": plan.file.minimise.name(), "precision": plan.file.precision.name(), "framework": plan.file.framework,
        "peak_per_s": plan.file.peak_per_s,
        "percentile": plan.file.target.map(|t| 100.0 * t.quantile),
        "latency_target_s": plan.file.target.map(|t| t.latency.get()),
        "chosen_gpu": plan.winner.map(|i| plan.candidates[i].gpu.clone()),
        "chosen_candidate": plan.winner.map(|i| plan.candidates[i].name.clone()),
        "sure": plan.winner.map(|_| plan.rivals().is_empty()),
        "not_surely_worse": plan.rivals().iter().map(|c| c.name.as_str()).collect::<Vec<_>>(),
        "decided_by": plan.decided_by(), "verdict": plan.conclusion(),
        "candidates": plan.candidates.iter().map(candidate).collect::<Vec<_>>(), "command": plan.command,
    })
}

/// A row per candidate and power limit or clock.
pub(super) fn csv(plan: &Plan) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut header = ["gpu", "power_cap_w", "clock_mhz", "chosen"].map(String::from).to_vec();
    for name in ["racks"].into_iter().chain(FIGURES.map(|(name, _)| name)) {
        header.extend(["", "_p05", "_p95"].map(|suffix| format!("{name}{suffix}")));
    }
    header.push("candidate".into());
    writer.write_record(&header)?;
    for c in &plan.candidates {
        for (i, o) in c.options.iter().enumerate() {
            let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
            let clock = number(o.clock.map(Hertz::to_mhz));
            let mut row = vec![c.gpu.clone(), o.cap.get().to_string(), clock, (c.chosen == Some(i)).to_string()];
            for figure in [o.racks()].into_iter().chain(FIGURES.map(|(_, of)| o.figure(|f| Some(of(f))))) {
                row.extend([figure.value, figure.p05, figure.p95].map(number));
            }
            row.push(c.name.clone());
            writer.write_record(&row)?;
        }
    }
    let bytes = writer.into_inner().map_err(|e| csv::Error::from(e.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
