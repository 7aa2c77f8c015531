//! What layers above keep for a device: one value of each type, which lives as long as the device and is unknown here.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Values by their type.
#[derive(Default)]
pub(super) struct Attached {
    values: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
}

impl Attached {
    /// The one of this type, made when first asked for.
    pub(super) fn of<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.values.lock();
        if let Some(value) = values.get(&TypeId::of::<T>())
            && let Ok(value) = Arc::clone(value).downcast::<T>()
        {
            return value;
        }
        let value = Arc::<T>::default();
        values.insert(TypeId::of::<T>(), Arc::clone(&value) as _);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Count(Mutex<usize>);

    #[test]
    fn one_of_each_type_stays() {
        let attached = Attached::default();
        *attached.of::<Count>().0.lock() += 1;
        *attached.of::<Mutex<usize>>().lock() += 5;
        *attached.of::<Count>().0.lock() += 1;
        assert_eq!(*attached.of::<Count>().0.lock(), 2);
        assert_eq!(*attached.of::<Mutex<usize>>().lock(), 5);
    }
}
