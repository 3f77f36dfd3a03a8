import Glibc
import Support

/// A part of a file that the disk cannot read, for a daemon that loads a library.
struct BadSector {
    /// What the daemon is started after.
    let preparation: String
    private let lab: Lab
    private let mark: String

    init(in lab: Lab) async throws {
        self.lab = lab
        mark = try lab.write("bad-sector", "0 0")
        let source = try lab.write(
            "bad-sector.c",
            """
            #include <errno.h>
            #include <stdio.h>
            #include <sys/stat.h>
            #include <sys/syscall.h>
            #include <unistd.h>

            static int is_bad(int file, size_t count, long offset) {
                unsigned long inode = 0;
                long bad = -1;
                struct stat status;
                FILE *mark = fopen("\(mark)", "r");
                if (mark == NULL) return 0;
                int found = fscanf(mark, "%lu %ld", &inode, &bad);
                fclose(mark);
                return found == 2 && fstat(file, &status) == 0 && status.st_ino == inode && offset <= bad
                    && bad < offset + (long)count;
            }

            ssize_t pread64(int file, void *bytes, size_t count, off64_t offset) {
                if (is_bad(file, count, offset)) {
                    errno = EIO;
                    return -1;
                }
                return syscall(SYS_pread64, file, bytes, count, offset);
            }

            ssize_t pread(int file, void *bytes, size_t count, off_t offset) {
                return pread64(file, bytes, count, offset);
            }

            """)
        let library = source.replacing(".c", with: ".so")
        try await LabProcess.run(["gcc", "-shared", "-fPIC", "-o", library, source], files: "\(source).gcc")
        // The library sets a variable in the first program that loads it, and the Swift runtime would no longer find the
        // arguments there.
        preparation = "export LD_PRELOAD=\(library) && set -- env \"$@\""
    }

    /// Makes the byte of the file unreadable, with what is read together with it.
    func put(at offset: Int, of file: String) throws {
        var status = stat()
        guard stat(file, &status) == 0 else { throw Lab.Failure("\(file): \(String(cString: strerror(errno)))") }
        try lab.write("bad-sector", "\(status.st_ino) \(offset)")
    }
}
