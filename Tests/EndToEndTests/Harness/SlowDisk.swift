import Support

/// A disk that can stand still, for programs in a container that load a library: their flushes wait.
struct SlowDisk {
    /// For LD_PRELOAD.
    let library = "/usr/local/lib/slow-disk.so"
    private let container: Container
    private let mark: String

    /// - Parameter folder: one that the programs can see. The disk stands still while there is a certain file in it.
    init(in container: Container, at folder: String) async throws {
        self.container = container
        mark = "\(folder)/disk-stands-still"
        let directory = try TemporaryDirectory()
        defer { directory.remove() }
        try directory.write(
            "slow-disk.c",
            """
            #include <sys/syscall.h>
            #include <unistd.h>

            static void wait_for_disk(void) {
                while (access("\(mark)", F_OK) == 0) usleep(10000);
            }

            int fsync(int file) { wait_for_disk(); return syscall(SYS_fsync, file); }
            int fdatasync(int file) { wait_for_disk(); return syscall(SYS_fdatasync, file); }

            """)
        let built = "\(directory.path)/slow-disk.so"
        try await LabProcess.run(
            ["gcc", "-shared", "-fPIC", "-o", built, "\(directory.path)/slow-disk.c"], files: "\(directory.path)/gcc")
        try container.copy(built, to: library)
    }

    func stops() async throws {
        try await container.run("install", "-D", "-m", "644", "/dev/null", mark)
    }

    func works() async throws {
        try await container.run("rm", mark)
    }
}
