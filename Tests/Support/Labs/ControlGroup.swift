import Foundation
import Glibc

/// A separate cgroup for one container. systemd-nspawn with `--keep-unit` leaves a container in the cgroup that it was
/// started in, where the units of two containers would be the same groups.
struct ControlGroup {
    /// Its paths in the hierarchies that systemd uses: its own of version 1, and that of version 2.
    private let paths: [String]

    init(_ name: String) {
        let lines = (try? String(contentsOfFile: "/proc/self/cgroup", encoding: .utf8)) ?? ""
        paths = lines.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            let root: String
            switch fields[1] {
            case "name=systemd": root = "/sys/fs/cgroup/systemd"
            case "": root = access("/sys/fs/cgroup/unified", F_OK) == 0 ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup"
            default: return nil
            }
            return "\(root)\(fields[2] == "/" ? "" : fields[2])/\(name)"
        }
    }

    /// Returns the command that starts another one in it.
    func around(_ words: [String]) -> [String] {
        let enter =
            #"while [ "$1" != -- ]; do mkdir "$1" && echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@""#
        return ["sh", "-c", enter, "sh"] + paths + ["--"] + words
    }

    /// - Returns: whether it is gone; it cannot be removed while something runs in it.
    func remove() -> Bool {
        for path in paths {
            let below = FileManager.default.enumerator(atPath: path)?.compactMap { $0 as? String } ?? []
            // Only folders can be removed; their files go with them.
            for folder in below.sorted().reversed() { rmdir("\(path)/\(folder)") }
            rmdir(path)
        }
        return paths.allSatisfy { access($0, F_OK) != 0 }
    }
}
