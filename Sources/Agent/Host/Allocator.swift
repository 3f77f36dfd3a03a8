import CMalloc

/// The memory of large messages.
enum Allocator {
    /// Makes memory for large messages go back to the system as soon as they are gone.
    ///
    /// As soon as it has freed one large block, glibc takes the next ones from its heap, up to 32 MiB each, and keeps what
    /// is freed there: the daemon would stay four times as large for the rest of its life. With a fixed threshold it does
    /// not (mallopt(3)). Blocks of the usual messages stay below it, because fresh pages cost time.
    static func returnsLargeBlocks() {
        mallopt(M_MMAP_THRESHOLD, 4 << 20)
        mallopt(M_TRIM_THRESHOLD, 8 << 20)
    }
}
