//! The loop that runs a step over portions: the next ones come while one is at work.

use std::collections::VecDeque;

use crate::error::Result;

/// What follows a portion that was at work.
pub(in crate::exec) enum Turn<T> {
    /// The next one.
    Next,
    /// The same once more: what it makes has more room now.
    Again(T),
    /// All of them, from the first on.
    Restart,
}

/// Run `work` over `count` portions in order, with what `run` is to both. `stage` queues the copies of one, and of up to `depth`
/// behind it before that one is at work. It gives `None` for a portion that does not come as a whole, and for one that is not
/// to come ahead of its turn (its third argument). Behind such a one nothing comes ahead: what takes its place needs the memory.
pub(in crate::exec) fn over_portions<R, T>(
    run: &mut R,
    (count, depth): (u64, usize),
    mut stage: impl FnMut(&mut R, u64, bool) -> Result<Option<T>>,
    mut work: impl FnMut(&mut R, u64, Option<T>) -> Result<Turn<T>>,
) -> Result<()> {
    // The portion at hand and those behind it.
    let mut staged: VecDeque<T> = VecDeque::with_capacity(depth + 1);
    let mut number = 0;
    while number < count {
        if staged.is_empty() {
            staged.extend(stage(run, number, false)?);
        }
        while !staged.is_empty() && staged.len() <= depth {
            let next = number + staged.len() as u64;
            let coming = match next < count {
                true => stage(run, next, true)?,
                false => None,
            };
            match coming {
                Some(portion) => staged.push_back(portion),
                None => break,
            }
        }
        match work(run, number, staged.pop_front())? {
            Turn::Next => number += 1,
            Turn::Again(portion) => staged.push_front(portion),
            Turn::Restart => {
                staged.clear();
                number = 0;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What happens, in order: `s` a portion is staged, `w` it is at work, `t` it is taken apart.
    fn events(
        (count, depth): (u64, usize),
        whole: impl Fn(u64) -> bool,
        mut turn: impl FnMut(u64) -> Turn<()>,
    ) -> String {
        let mut log = String::new();
        over_portions(
            &mut log,
            (count, depth),
            |log, number, _| {
                let staged = whole(number).then_some(number);
                if staged.is_some() {
                    *log += &format!("s{number} ");
                }
                Ok(staged)
            },
            |log, number, staged| {
                match staged {
                    Some(staged) => assert_eq!(staged, number),
                    None => {
                        *log += &format!("t{number} ");
                        return Ok(Turn::Next);
                    }
                }
                *log += &format!("w{number} ");
                Ok(match turn(number) {
                    Turn::Next => Turn::Next,
                    Turn::Again(()) => Turn::Again(number),
                    Turn::Restart => Turn::Restart,
                })
            },
        )
        .unwrap();
        log
    }

    #[test]
    fn the_next_portions_come_while_one_is_at_work() {
        let next = |_| Turn::Next;
        assert_eq!(events((0, 1), |_| true, next), "");
        assert_eq!(events((3, 0), |_| true, next), "s0 w0 s1 w1 s2 w2 ");
        assert_eq!(events((3, 1), |_| true, next), "s0 s1 w0 s2 w1 w2 ");
        assert_eq!(events((4, 2), |_| true, next), "s0 s1 s2 w0 s3 w1 w2 w3 ");
    }

    #[test]
    fn nothing_comes_beside_what_is_taken_apart() {
        let whole = |number| number != 1;
        let next = |_| Turn::Next;
        assert_eq!(events((4, 1), whole, next), "s0 w0 t1 s2 s3 w2 w3 ");
    }

    #[test]
    fn portions_are_at_work_again_and_all_from_the_first_on() {
        let mut turns = [Turn::Again(()), Turn::Next, Turn::Restart].into_iter();
        let turn = |_| turns.next().unwrap_or(Turn::Next);
        let log = events((3, 1), |_| true, turn);
        assert_eq!(log, "s0 s1 w0 w0 s2 w1 s0 s1 w0 s2 w1 w2 ");
    }
}
