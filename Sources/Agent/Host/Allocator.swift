import CMalloc

/// The memory of large messages.
enum Allocator {
    /// Makes memory for large messages go back to the system as soon as they are gone.
    ///
    /// Once glibc has freed a large block, it takes further ones of up to 32 MiB from its heap, and keeps what is freed
    /// there: the daemon would stay four times as large for as long as it runs. A fixed threshold prevents that
    /// (mallopt(3)). The blocks of usual messages are smaller than the threshold, because fresh pages cost time.
    static func returnsLargeBlocks() {
        mallopt(M_MMAP_THRESHOLD, 4 << 20)
        mallopt(M_TRIM_THRESHOLD, 8 << 20)
    }
}
