import Glibc

/// Runs `body`, which may block, on a thread of its own that ends with it. NIO's pools have a fixed number of threads, and
/// start all of them at once.
///
/// - Returns: 0, or the error for which no thread can be started.
package func startThread(_ body: @escaping @Sendable () -> Void) -> CInt {
    final class Box: Sendable {
        let body: @Sendable () -> Void
        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setdetachstate(&attributes, CInt(PTHREAD_CREATE_DETACHED))
    // Enough for the C library's plug-ins.
    pthread_attr_setstacksize(&attributes, 512 << 10)
    let box = Unmanaged.passRetained(Box(body))
    var thread = pthread_t()
    let code = pthread_create(
        &thread, &attributes,
        { argument in
            if let argument { Unmanaged<Box>.fromOpaque(argument).takeRetainedValue().body() }
            return nil
        }, box.toOpaque())
    if code != 0 { box.release() }
    return code
}
