//! `calibrate restore`: clocks and power limits back to what they were before a session that could not restore them.

use anyhow::{Context, bail};
use joulecast_kernels::nvml::{self, BoardChoice, Nvml, NvmlControl};
use joulecast_kernels::settings::restore::{Outcome, restore_all};
use std::path::Path;

/// Restores every stale journal in `folder` through the NVML library at `library` (`None`: the system's) and returns
/// what was done, a line per GPU. Sessions that are running are left alone and named. NVML is opened only where there
/// is something to restore.
///
/// # Errors
/// When the folder is not safe, or anything could not be restored: the message then has all lines.
pub fn restore(folder: &Path, library: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let mut opened: Option<Nvml> = None;
    let outcomes = restore_all(folder, |uuid| {
        let api = match opened.take() {
            Some(api) => api,
            None => nvml::open(library)?,
        };
        let board = api.board(&BoardChoice::Uuid(uuid.to_string()));
        opened = Some(api);
        Ok(NvmlControl::new(board?))
    })
    .with_context(|| format!("restoring from {}", folder.display()))?;
    if outcomes.is_empty() {
        return Ok(vec![format!("nothing to restore in {}", folder.display())]);
    }
    let all_well = !outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    let lines: Vec<String> = outcomes.iter().map(|(uuid, outcome)| line(uuid, outcome)).collect();
    if all_well { Ok(lines) } else { bail!("{}", lines.join("; ")) }
}

fn line(uuid: &str, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Restored(said) if said.is_empty() => format!("GPU {uuid}: nothing had been changed"),
        Outcome::Restored(said) => format!("GPU {uuid}: {}", said.join(", ")),
        Outcome::Running(holder) => format!("GPU {uuid}: left alone, {holder} is measuring"),
        Outcome::Failed(error) => format!("GPU {uuid}: not restored, {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_kernels::DeviceError;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn lines_say_what_became_of_each_gpu() {
        let said = vec!["core clock unlocked".to_string(), "power limit set back to 650 W".to_string()];
        assert_eq!(line("ab", &Outcome::Restored(said)), "GPU ab: core clock unlocked, power limit set back to 650 W");
        assert_eq!(line("ab", &Outcome::Restored(Vec::new())), "GPU ab: nothing had been changed");
        assert_eq!(line("ab", &Outcome::Running("process 7".into())), "GPU ab: left alone, process 7 is measuring");
        let failed = Outcome::Failed(DeviceError::NotPermitted("the power limit".into()));
        assert_eq!(line("ab", &failed), "GPU ab: not restored, not permitted to set the power limit");
    }

    #[test]
    fn without_a_journal_no_library_is_needed() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let nowhere = Path::new("/nowhere/libnvidia-ml.so.1");
        for place in [folder.path().to_path_buf(), folder.path().join("missing")] {
            assert_eq!(restore(&place, Some(nowhere))?, [format!("nothing to restore in {}", place.display())]);
        }
        Ok(())
    }

    #[test]
    fn a_journal_without_a_library_is_kept_and_said() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let journal = folder.path().join("ab.journal");
        let text = r#"{"schema":"settings-journal/1","uuid":"ab","pid":1,"started_unix_s":1,"power_limit_w":300.0,
            "core_lock_mhz":null,"power_changed":true,"core_changed":false}"#;
        std::fs::write(&journal, text)?;
        std::fs::set_permissions(&journal, std::fs::Permissions::from_mode(0o600))?;
        let error = restore(folder.path(), Some(Path::new("/nowhere/libnvidia-ml.so.1"))).err();
        let error = error.map(|e| e.to_string()).unwrap_or_default();
        assert!(error.contains("GPU ab: not restored") && error.contains("/nowhere"), "{error}");
        assert!(journal.exists());
        Ok(())
    }
}
