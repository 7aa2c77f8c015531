//! What devices have in common whose memory alone is another than that of the device behind them.

/// Everything of [`super::Device`] that is not about memory, as the field `inner` does it, and the host memory that it gives.
macro_rules! work_of_inner {
    () => {
        fn info(&self) -> &DeviceInfo {
            self.inner.info()
        }

        fn lost(&self) -> Option<String> {
            self.inner.lost()
        }

        fn allocate_host(&self, bytes: usize) -> Result<DevicePtr> {
            self.inner.allocate_host(bytes)
        }

        unsafe fn free_host(&self, ptr: DevicePtr, bytes: usize) {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.inner.free_host(ptr, bytes) }
        }

        fn create_stream(&self) -> Result<Stream> {
            self.inner.create_stream()
        }

        fn fence(&self) -> Result<Fence> {
            self.inner.fence()
        }

        fn fence_passed(&self, fence: &Fence, wait: bool) -> Result<bool> {
            self.inner.fence_passed(fence, wait)
        }

        fn newest(&self, stream: &Stream) -> u64 {
            self.inner.newest(stream)
        }

        fn has_ended(&self, stream: &Stream, work: u64) -> bool {
            self.inner.has_ended(stream, work)
        }

        fn synchronize(&self, stream: &Stream) -> Result<()> {
            self.inner.synchronize(stream)
        }

        unsafe fn copy_on_device(
            &self,
            stream: &Stream,
            source: DevicePtr,
            destination: DevicePtr,
            bytes: usize,
        ) -> Result<()> {
            // SAFETY: the caller's promise is passed on.
            unsafe {
                self.inner
                    .copy_on_device(stream, source, destination, bytes)
            }
        }

        unsafe fn fill(
            &self,
            stream: &Stream,
            destination: DevicePtr,
            value: u8,
            bytes: usize,
        ) -> Result<()> {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.inner.fill(stream, destination, value, bytes) }
        }

        fn compile(&self, name: &str, source: &str) -> Result<(Module, CompileReport)> {
            self.inner.compile(name, source)
        }

        fn has_kernels_on_disk(&self) -> bool {
            self.inner.has_kernels_on_disk()
        }

        fn kernel(&self, module: &Module, name: &str) -> Result<Kernel> {
            self.inner.kernel(module, name)
        }

        fn blocks_per_multiprocessor(
            &self,
            kernel: &Kernel,
            block: u32,
            shared_bytes: usize,
        ) -> Result<u32> {
            self.inner
                .blocks_per_multiprocessor(kernel, block, shared_bytes)
        }

        unsafe fn launch(
            &self,
            stream: &Stream,
            kernel: &Kernel,
            config: LaunchConfig,
            arguments: &[u8],
        ) -> Result<()> {
            // SAFETY: the caller's promise is passed on.
            unsafe { self.inner.launch(stream, kernel, config, arguments) }
        }

        fn record_event(&self, stream: &Stream) -> Result<Event> {
            self.inner.record_event(stream)
        }

        fn wait_event(&self, stream: &Stream, event: &Event) -> Result<()> {
            self.inner.wait_event(stream, event)
        }

        fn event_passed(&self, event: &Event, wait: bool) -> Result<bool> {
            self.inner.event_passed(event, wait)
        }

        fn elapsed_ms(&self, start: &Event, end: &Event) -> Result<f64> {
            self.inner.elapsed_ms(start, end)
        }
    };
}

pub(super) use work_of_inner;
