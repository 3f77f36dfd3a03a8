package import ControlAPI
import Glibc

extension RFC3339 {
    /// The wall clock's time.
    ///
    /// It is defined here for `holdfastctl` as well: there, in a release build with ArgumentParser, the compiler takes
    /// `timespec` for a declaration of a module that cannot be imported.
    package static var wallClock: RFC3339 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return RFC3339(seconds: Int64(time.tv_sec), nanoseconds: Int64(time.tv_nsec))
    }
}
