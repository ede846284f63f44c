//! Work that several threads do and one takes, in order.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What threads share.
struct Shared<I, T> {
    state: Mutex<State<I, T>>,
    /// Something was made, or nothing more will be.
    made: Condvar,
    /// There is room for more to be made.
    room: Condvar,
}

struct State<I, T> {
    items: I,
    /// What was made or is being made, in order, from the first on that was not taken.
    waiting: VecDeque<Option<T>>,
    /// How many were taken.
    taken: usize,
    /// Whether there are no more items, or nobody takes what is made of them.
    ended: bool,
    /// How many threads may make something yet.
    working: usize,
}

impl<I, T> Shared<I, T> {
    fn lock(&self) -> MutexGuard<'_, State<I, T>> {
        // Whoever panicked while holding it ends all anyway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A thread that makes, or the one that takes; nobody waits for one that is gone, in whatever way.
struct Presence<'s, I, T> {
    shared: &'s Shared<I, T>,
    makes: bool,
}

impl<I, T> Drop for Presence<'_, I, T> {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended |= !self.makes || std::thread::panicking();
        state.working -= usize::from(self.makes);
        self.shared.room.notify_all();
        self.shared.made.notify_all();
    }
}

/// Makes something of each item on so many threads, and gives it to `take` on this one, in the order of the items; no more
/// than so many are made before they are taken.
///
/// # Errors
/// The first of `take`, after which nothing is made any more.
pub(super) fn each<I: Iterator<Item = A> + Send, A, T: Send, E>(
    items: I,
    (threads, ahead): (usize, usize),
    make: impl Fn(A) -> T + Sync,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1);
    let state = State { items, waiting: VecDeque::new(), taken: 0, ended: false, working: threads };
    let shared = Shared { state: Mutex::new(state), made: Condvar::new(), room: Condvar::new() };
    let work = || {
        let _presence = Presence { shared: &shared, makes: true };
        loop {
            let mut state = shared.lock();
            while state.waiting.len() >= ahead.max(1) && !state.ended {
                state = shared.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ended {
                return;
            }
            let Some(item) = state.items.next() else {
                state.ended = true;
                return;
            };
            let place = state.taken + state.waiting.len();
            state.waiting.push_back(None);
            drop(state);
            let made = make(item);
            let mut state = shared.lock();
            let first = state.taken;
            if let Some(waiting) = state.waiting.get_mut(place - first) {
                *waiting = Some(made);
            }
            // Only what is taken next is waited for.
            if place == first {
                shared.made.notify_one();
            }
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
        let _presence = Presence { shared: &shared, makes: false };
        let mut state = shared.lock();
        loop {
            if let Some(Some(made)) = state.waiting.front_mut().map(Option::take) {
                state.waiting.pop_front();
                state.taken += 1;
                drop(state);
                shared.room.notify_one();
                take(made)?;
                state = shared.lock();
            } else if state.working == 0 {
                return Ok(());
            } else {
                state = shared.made.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_make_is_taken_in_order() {
        for (threads, ahead) in [(1, 1), (3, 1), (2, 8), (5, 64)] {
            let mut taken = Vec::new();
            let made = each(
                0..500u64,
                (threads, ahead),
                |i| {
                    // Some take longer than those behind them.
                    (0..(i % 7) * 1000).for_each(|i| _ = std::hint::black_box(i));
                    i * i
                },
                |square| {
                    taken.push(square);
                    Ok::<_, ()>(())
                },
            );
            assert_eq!(made, Ok(()));
            assert!(taken.iter().copied().eq((0..500).map(|i| i * i)), "{threads} threads, {ahead} ahead");
        }
    }

    #[test]
    fn nothing_is_made_after_an_error() {
        let made = Mutex::new(0);
        let result = each(
            0..,
            (2, 4),
            |i: u64| {
                *made.lock().expect("no panic") += 1;
                i
            },
            |i| if i < 10 { Ok(()) } else { Err(i) },
        );
        assert_eq!(result, Err(10));
        assert!(*made.lock().expect("no panic") < 20);
    }

    #[test]
    #[should_panic]
    fn a_panic_is_handed_on() {
        let _ = each(0..9u64, (2, 4), |i| assert!(i < 5), |()| Ok::<_, ()>(()));
    }
}
