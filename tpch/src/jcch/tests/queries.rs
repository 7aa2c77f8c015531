//! The reference's own text of query 21 gives the answer of the query.

use crate::generate::{generate, register};
use crate::jcch::{Binding, Bindings, Seed};
use crate::runner::reference_answer;
use crate::scale::Scale;
use crate::tables::{Dataset, Table};
use crate::tests::{TestEngine, on_large_stack};
use crate::verify::compare;

#[test]
fn both_texts_of_query_21_agree() {
    on_large_stack(async {
        // Small, because one text takes time with the square of an order's lines.
        let scale = Scale::new(0.004).expect("a scale");
        let engine = TestEngine::new();
        let dataset = Dataset::jcch(scale).expect("a scale of JCC-H");
        register(&engine, generate(&Table::ALL, dataset, 2).expect("data")).expect("tables");
        let context = &engine.context;
        let mut rows = 0;
        for bindings in [Bindings::Skewed, Bindings::Normal] {
            for seed in ["1648967542", "1", "7", "2025"] {
                let binding = Binding {
                    bindings,
                    seed: seed.parse::<Seed>().expect("a seed"),
                    scale: Scale::new(1.0).expect("a scale"),
                };
                let query = binding.query(21).expect("a query");
                assert_ne!(query.sql, query.reference_sql());
                let (plain, ordering) = reference_answer(context, &query.sql)
                    .await
                    .expect("an answer");
                let (other, _) = reference_answer(context, query.reference_sql())
                    .await
                    .expect("an answer");
                assert_eq!(
                    compare(&plain, &other, &ordering),
                    None,
                    "{bindings} {seed}"
                );
                rows += plain.batch().num_rows();
            }
        }
        // Not all of the answers are empty.
        assert!(rows > 10, "{rows}");
    });
}

#[test]
fn only_query_21_has_a_text_for_the_reference_and_only_where_it_needs_one() {
    for (scale, with) in [(0.01, vec![]), (0.011, vec![21]), (30.0, vec![21])] {
        let binding = Binding {
            bindings: Bindings::Skewed,
            seed: Seed::default(),
            scale: Scale::new(scale).expect("a scale"),
        };
        let queries = (1..=22).map(|number| binding.query(number).expect("a query"));
        let found: Vec<u8> = queries
            .filter(|query| query.reference.is_some())
            .map(|query| query.number)
            .collect();
        assert_eq!(found, with);
    }
}
