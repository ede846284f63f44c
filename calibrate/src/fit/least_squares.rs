//! Least squares with coefficients of at least zero, by coordinate descent.

use ndarray::{Array1, Array2};

const SWEEPS: usize = 2_000;
const CONVERGED: f64 = 1e-9;

/// Coefficients c >= 0 that make |x c - y| least; columns of `x` should be of one magnitude. A column of zeros gets 0.
pub fn non_negative(x: &Array2<f64>, y: &Array1<f64>) -> Array1<f64> {
    let (gram, target) = (x.t().dot(x), x.t().dot(y));
    let mut c = Array1::<f64>::zeros(x.ncols());
    for _ in 0..SWEEPS {
        let mut largest = 0.0f64;
        for j in 0..c.len() {
            if gram[[j, j]] <= 0.0 {
                continue;
            }
            let slope = target[j] - gram.row(j).dot(&c);
            let new = (c[j] + slope / gram[[j, j]]).max(0.0);
            largest = largest.max((new - c[j]).abs());
            c[j] = new;
        }
        if largest < CONVERGED {
            break;
        }
    }
    c
}

/// The upper middle of at least one value.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;

    #[test]
    fn known_coefficients_are_found_and_none_is_negative() {
        let x = array![[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 3.0]];
        let c = non_negative(&x, &array![2.0, 5.0, 8.0, 11.0]);
        assert!((c[0] - 2.0).abs() < 1e-6 && (c[1] - 3.0).abs() < 1e-6, "{c}");
        let c = non_negative(&x, &array![3.0, 2.0, 1.0, 0.0]);
        assert_eq!(c[1], 0.0);
        assert!((c[0] - 1.5).abs() < 1e-6, "{c}");
    }
}
