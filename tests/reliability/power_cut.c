/* A power cut for one process: what was written after the last fsync of a file is lost, in part or whole.
 *
 * Preloaded. Writes go to the real files; of every 4 KiB page that was changed since the last fsync of its
 * file, the old content is remembered. After a number of operations the power goes: pages are put back, each
 * as it was, as it is, or torn sector by sector, file sizes likewise, and the process ends without a word.
 * Nothing is done before power_cut_arm(); fsync is a note then, no flush: the machine does not crash.
 * A file that was never synced is gone; the entry of one that was is taken to be durable with it, as on ext4
 * and xfs, and so is an unlink. Files of shared memory (-shm) do not survive a power cut anyway and are left alone.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define SECTOR 512
#define FDS 4096

struct page {
    off_t number;
    ssize_t length; /* bytes that were there, 0 behind the end of the file */
    unsigned char old[PAGE];
    struct page *next;
};

struct file {
    dev_t device;
    ino_t inode;
    char path[1024];
    off_t synced_size;
    int never_synced;
    struct page *pages;
    struct file *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;
static struct file *of_fd[FDS];
static char folder[1024];
static int mode;
static long operations = -1;
static uint64_t state;

static uint64_t draw(void) { /* xorshift64 */
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* From now on, files under a folder; the power goes at the given operation on one of them.
 * how: 0 everything not synced is lost, 1 any part of it. */
void power_cut_arm(const char *under, long after, int how, uint64_t seed) {
    strncpy(folder, under, sizeof folder - 1);
    operations = after;
    mode = how;
    state = seed * 2654435769u + 88172645463325252u;
}

static struct page *find_page(struct file *file, off_t number) {
    for (struct page *page = file->pages; page; page = page->next)
        if (page->number == number) return page;
    return NULL;
}

static void remember(int fd, struct file *file, off_t from, off_t to) {
    for (off_t number = from / PAGE; number * PAGE < to; number++) {
        if (find_page(file, number)) continue;
        struct page *page = calloc(1, sizeof *page);
        page->number = number;
        page->length = syscall(SYS_pread64, fd, page->old, PAGE, number * PAGE);
        if (page->length < 0) page->length = 0;
        page->next = file->pages;
        file->pages = page;
    }
}

static void forget(struct file *file) {
    while (file->pages) {
        struct page *page = file->pages;
        file->pages = page->next;
        free(page);
    }
}

static void put_back(int fd, struct page *page, off_t size) {
    unsigned char mixed[PAGE] = {0};
    ssize_t now = syscall(SYS_pread64, fd, mixed, PAGE, page->number * PAGE);
    if (now < 0) now = 0;
    uint64_t fate = mode == 0 ? 0 : draw() % 4;
    if (fate == 3) return; /* it had reached the disk by chance */
    for (int sector = 0; sector < PAGE; sector += SECTOR)
        if (fate != 2 || draw() % 2) memcpy(mixed + sector, page->old + sector, SECTOR);
    off_t begin = page->number * PAGE;
    off_t length = begin + PAGE <= size ? PAGE : size - begin;
    if (length > 0) syscall(SYS_pwrite64, fd, mixed, length, begin);
}

static void cut(void) {
    for (struct file *file = files; file; file = file->next) {
        if (!file->path[0]) continue;
        if (file->never_synced) {
            syscall(SYS_unlinkat, AT_FDCWD, file->path, 0);
            continue;
        }
        int fd = syscall(SYS_openat, AT_FDCWD, file->path, O_RDWR, 0);
        struct stat now;
        if (fd < 0 || fstat(fd, &now) || now.st_ino != file->inode) continue;
        off_t size = file->synced_size;
        if (mode && draw() % 2) size = now.st_size;
        for (struct page *page = file->pages; page; page = page->next) put_back(fd, page, size);
        syscall(SYS_ftruncate, fd, size);
    }
    syscall(SYS_exit_group, 137);
}

static struct file *tracked(int fd) {
    return operations >= 0 && fd >= 0 && fd < FDS ? of_fd[fd] : NULL;
}

static int is_last(void) { return operations-- == 0; }

static void track(int fd, const char *path, int flags, int existed) {
    size_t length = strlen(path);
    if (fd < 0 || fd >= FDS || (flags & O_DIRECTORY)) return;
    of_fd[fd] = NULL;
    if (operations < 0 || !folder[0] || strncmp(path, folder, strlen(folder))) return;
    if (length > 4 && !strcmp(path + length - 4, "-shm")) return;
    struct stat about;
    if (fstat(fd, &about) || !S_ISREG(about.st_mode)) return;
    pthread_mutex_lock(&lock);
    struct file *file = files;
    while (file && (!file->path[0] || file->inode != about.st_ino || file->device != about.st_dev)) file = file->next;
    if (!file) {
        file = calloc(1, sizeof *file);
        file->device = about.st_dev;
        file->inode = about.st_ino;
        strncpy(file->path, path, sizeof file->path - 1);
        file->synced_size = about.st_size;
        file->never_synced = !existed;
        file->next = files;
        files = file;
    }
    of_fd[fd] = file;
    pthread_mutex_unlock(&lock);
}

static int open_any(int directory, const char *path, int flags, mode_t mode_) {
    int existed = 1;
    if (operations >= 0 && (flags & O_CREAT)) existed = !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
    int fd = syscall(SYS_openat, directory, path, flags, mode_);
    track(fd, path, flags, existed);
    return fd;
}

#define MODE(flags) ({ mode_t m = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list list; va_start(list, flags); m = va_arg(list, mode_t); va_end(list); } m; })

int open(const char *path, int flags, ...) { return open_any(AT_FDCWD, path, flags, MODE(flags)); }
int open64(const char *path, int flags, ...) { return open_any(AT_FDCWD, path, flags, MODE(flags)); }
int openat(int at, const char *path, int flags, ...) { return open_any(at, path, flags, MODE(flags)); }
int openat64(int at, const char *path, int flags, ...) { return open_any(at, path, flags, MODE(flags)); }

int close(int fd) {
    if (fd >= 0 && fd < FDS) of_fd[fd] = NULL;
    return syscall(SYS_close, fd);
}

/* Gone at once and for good; the inode may be another file's in a moment. */
int unlink(const char *path) {
    struct stat about;
    if (operations >= 0 && !stat(path, &about)) {
        pthread_mutex_lock(&lock);
        for (struct file *file = files; file; file = file->next)
            if (file->inode == about.st_ino && file->device == about.st_dev && about.st_nlink == 1) {
                forget(file);
                file->inode = 0;
                file->path[0] = 0;
            }
        pthread_mutex_unlock(&lock);
    }
    return syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}

static ssize_t write_at(int fd, struct file *file, const void *data, size_t length, off_t at) {
    pthread_mutex_lock(&lock);
    remember(fd, file, at, at + length);
    int last = is_last();
    if (last) length = draw() % (length + 1);
    ssize_t written = syscall(SYS_pwrite64, fd, data, length, at);
    if (last) cut();
    pthread_mutex_unlock(&lock);
    return written;
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) {
    struct file *file = tracked(fd);
    return file ? write_at(fd, file, data, length, at) : syscall(SYS_pwrite64, fd, data, length, at);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off_t at) { return pwrite(fd, data, length, at); }

ssize_t write(int fd, const void *data, size_t length) {
    struct file *file = tracked(fd);
    if (!file) return syscall(SYS_write, fd, data, length);
    int flags = syscall(SYS_fcntl, fd, F_GETFL);
    off_t at = lseek(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
    ssize_t written = write_at(fd, file, data, length, at);
    if (written > 0) lseek(fd, at + written, SEEK_SET);
    return written;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!tracked(fd)) return syscall(SYS_writev, fd, parts, count);
    ssize_t total = 0;
    for (int at = 0; at < count; at++) {
        ssize_t written = write(fd, parts[at].iov_base, parts[at].iov_len);
        if (written < 0) return total ? total : written;
        total += written;
    }
    return total;
}

int ftruncate(int fd, off_t size) {
    struct file *file = tracked(fd);
    if (!file) return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&lock);
    struct stat now;
    if (!fstat(fd, &now)) remember(fd, file, size, now.st_size);
    if (is_last()) cut();
    int done = syscall(SYS_ftruncate, fd, size);
    pthread_mutex_unlock(&lock);
    return done;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

static int synced(int fd, struct file *file) {
    pthread_mutex_lock(&lock);
    if (is_last()) cut(); /* it never came back */
    struct stat now;
    if (!fstat(fd, &now)) file->synced_size = now.st_size;
    file->never_synced = 0;
    forget(file);
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd) {
    struct file *file = tracked(fd);
    return file ? synced(fd, file) : syscall(SYS_fsync, fd);
}
int fdatasync(int fd) {
    struct file *file = tracked(fd);
    return file ? synced(fd, file) : syscall(SYS_fdatasync, fd);
}
