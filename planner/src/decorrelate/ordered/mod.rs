//! Subqueries whose rows a comparison with the row around chooses: the latest row before it (an as-of join), a total of what came before.
//!
//! `SELECT bid FROM quotes q WHERE q.symbol = t.symbol AND q.time <= t.time ORDER BY q.time DESC LIMIT 1`, joined by its conditions, makes
//! a pair of any two rows that fulfil them, as many as the square of a symbol's rows, and drops all but one of each trade. In one
//! order of the values around and the rows below, the row that is asked for is the last one before each value, and an aggregate of
//! the chosen rows is a running one. So the subquery becomes windows over the union of both: n log n, whatever the keys are.

//!
//! | | |
//! |---|---|
//! | `meeting` | how the rows of a subquery and the values around it meet: equal keys, and comparisons |
//! | `merged` | both in one plan, and windows over its order |
//! | `running` | aggregates of all rows on one side of a value |
//! | `nearest` | the first row of an order that a comparison bounds, as a subquery or the right side of a lateral join |

mod meeting;
mod merged;
mod nearest;
mod running;

pub(super) use nearest::lateral_join;
