//! Cross-validation folds that keep a key's rows together.

use linfa::Dataset;
use ndarray::{Array1, Array2};
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256Plus;
use std::collections::{BTreeSet, HashMap};

/// Assigns every row to one of `count` folds so that rows of one key share a fold. Deterministic in the seed
/// and in the set of keys, not in the order of rows.
pub fn grouped(keys: &[&str], count: usize, seed: u64) -> Vec<usize> {
    let unique: BTreeSet<&str> = keys.iter().copied().collect();
    let positions = Array1::from_iter(0..unique.len());
    let groups = Dataset::new(Array2::<f64>::zeros((unique.len(), 1)), positions);
    let shuffled = groups.shuffle(&mut Xoshiro256Plus::seed_from_u64(seed));
    let mut fold_of_group = vec![0; unique.len()];
    for (place, &group) in shuffled.targets().iter().enumerate() {
        fold_of_group[group] = place % count.max(1);
    }
    let fold_of_key: HashMap<&str, usize> = unique.into_iter().zip(fold_of_group).collect();
    keys.iter().map(|key| fold_of_key.get(key).copied().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_together_and_folds_are_even() {
        let names: Vec<String> = (0..1000).map(|i| format!("shape{}", i / 3)).collect();
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        let folds = grouped(&keys, 5, 1);
        for i in 1..1000 {
            if keys[i] == keys[i - 1] {
                assert_eq!(folds[i], folds[i - 1]);
            }
        }
        for fold in 0..5 {
            let share = folds.iter().filter(|f| **f == fold).count();
            assert!((180..=220).contains(&share), "{share}");
        }
        assert_eq!(folds, grouped(&keys, 5, 1));
        assert_ne!(folds, grouped(&keys, 5, 2));
    }
}
