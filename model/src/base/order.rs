//! Sorting of lists that are short and of many types.

use std::cmp::Ordering;

/// Sorts a list as [`slice::sort_by`] does. That is seven kilobytes of code for every type and order, this one for all:
/// where a list is long or sorted often, use that.
pub fn sort_by<T>(list: &mut Vec<T>, mut order: impl FnMut(&T, &T) -> Ordering) {
    let mut places: Vec<usize> = (0..list.len()).collect();
    sort_places(&mut places, &mut |&a, &b| order(&list[a], &list[b]));
    let mut left: Vec<Option<T>> = list.drain(..).map(Some).collect();
    list.extend(places.into_iter().filter_map(|place| left[place].take()));
}

fn sort_places(places: &mut [usize], order: &mut dyn FnMut(&usize, &usize) -> Ordering) {
    places.sort_by(order);
}

#[cfg(test)]
mod tests {
    use super::sort_by;

    #[test]
    fn what_is_alike_stays_in_its_order() {
        let mut list: Vec<(usize, usize)> = (0..100).map(|i| (i * 7 % 10, i)).collect();
        let mut other = list.clone();
        sort_by(&mut list, |a, b| a.0.cmp(&b.0));
        other.sort_by_key(|entry| entry.0);
        assert_eq!(list, other);
        sort_by(&mut Vec::<u8>::new(), Ord::cmp);
    }
}
