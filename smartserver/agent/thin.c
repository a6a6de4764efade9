/* git-remote-hpss in C: it hands the command to the user's agent, as agent/thin.py does, without the start of Python.
   With NAME and READING it is smartserver.

   thin.py describes the packets, address.py the socket, peer.py who may listen there, cli/git_remote.py and reading.py
   the commands that an agent may run, cli/streams.py what is opened first. This program repeats them byte for byte. It
   runs the Python program instead wherever one of those files changed since it was compiled, no agent answers, or
   anything is unusual. Until then it has touched no open stream and no signal.

   agent/compiled.py compiles it, and defines
     PYTHON   the interpreter
     CODE     what the interpreter runs in place of this program
     VERSION  of smartserver
     FOLDER   of smartserver
     FILES    {path, time of the last change in nanoseconds}, of __init__.py first
     NAME     of the program, and READING, its commands that the agent may run; of git's programs neither */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_HANDED_OVER = 1 << 20, /* Bytes, of zygote.py. */
    MAX_PACKET = 64 * 1024,
    MAX_VARIABLES = 8192,
    TIME_TO_ANSWER = 2, /* Seconds. */
    MAX_FACTS = 64 * 1024,
    LOST = 128,
};

#ifndef TIME_TO_END
#define TIME_TO_END 10 /* Seconds; tests have less. */
#endif
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Of Linux 6.5. */
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const struct {
    const char *path;
    long long changed;
} files[] = {FILES};

static const char LAST_WORDS[] =
    "fatal: hpss: the process that ran this command ended without a word: it is unknown whether a change was made\n";

static char *variables[MAX_VARIABLES + 1];
static size_t variables_count;
static char packet[MAX_HANDED_OVER];
static size_t packet_size;

static bool starts_with(const char *text, const char *start) { return strncmp(text, start, strlen(start)) == 0; }

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value != NULL && *value != '\0';
}

/* -- whether an agent may run the command */

static bool is_false(const char *value) {
    static const char *const falses[] = {"0", "false", "no", "off"};
    for (size_t at = 0; value != NULL && at < COUNT(falses); at++)
        if (strcasecmp(value, falses[at]) == 0) return true;
    return false;
}

static bool begins_with_any(const char *word, const char *const *starts, size_t count) {
    for (size_t at = 0; at < count; at++)
        if (strncasecmp(word, starts[at], strlen(starts[at])) == 0) return true;
    return false;
}

#ifdef READING

static bool is_known(int count, char *const *words) {
    static const char *const commands[] = {READING}, *const schemes[] = {"hpss://", "hpss+tls://"};
    int command = 1;
    bool is_reading = false, has_url = false;
    while (command < count && starts_with(words[command], "-D")) command++;
    for (size_t at = 0; command < count && at < COUNT(commands); at++)
        is_reading |= strcmp(words[command], commands[at]) == 0;
    for (int at = 1; at < count; at++) has_url |= begins_with_any(words[at], schemes, COUNT(schemes));
    return is_reading && has_url;
}

#else

/* A trace that git writes to a descriptor, which is not passed on. */
static bool is_trace_above_2(const char *variable) {
    const char *value = strchr(variable, '=');
    if (value == NULL || !starts_with(variable, "GIT_TRACE")) return false;
    size_t digits = strspn(++value, "0123456789");
    if (digits == 0 || value[digits] != '\0') return false;
    value += strspn(value, "0");
    return strlen(value) > 1 || *value > '2';
}

static bool is_known(int count, char *const *words) {
    static const char *const schemes[] = {"hpss://", "hpss+tls://", "hpss+ssh://"};
    if (count != 3 || strcmp(words[1], "-h") == 0 || strcmp(words[1], "--help") == 0) return false;
    for (char **each = environ; *each != NULL; each++)
        if (is_trace_above_2(*each)) return false;
    return begins_with_any(words[2], schemes, COUNT(schemes));
}

#endif

static bool is_for_agent(int count, char *const *words) {
    if (!is_known(count, words)) return false;
    if (is_false(getenv("SMARTSERVER_AGENT")) || is_set("LD_PRELOAD") || is_set("LD_AUDIT")) return false;
    /* With these Python may load another smartserver, or another locale. */
    if (is_set("PYTHONPATH") || is_set("PYTHONHOME") || getenv("PYTHONCOERCECLOCALE") != NULL) return false;
    return true;
}

/* -- the address */

static uint32_t crc32_of(const char *text) {
    uint32_t crc = 0xffffffff;
    for (; *text != '\0'; text++) {
        crc ^= (unsigned char)*text;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
    }
    return ~crc;
}

/* A folder in the one that a variable names, if that is the user's own. */
static bool is_below(char *folder, size_t room, const char *variable, const char *name) {
    const char *base = getenv(variable);
    struct stat found;
    if (base == NULL || *base != '/' || stat(base, &found) < 0 || found.st_uid != geteuid()) return false;
    snprintf(folder, room, "%s/%s", base, name);
    return true;
}

static bool find_socket(struct sockaddr_un *address) {
    char network[128] = "", facts[4096 + 512], folder[4096];
    struct stat found;
    struct utsname system;
    for (size_t at = 0; at < COUNT(files); at++) {
        if (stat(files[at].path, &found) < 0) return false;
        if (found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec != files[at].changed) return false;
    }
    ssize_t size = readlink("/proc/self/ns/net", network, sizeof network - 1);
    if (size > 0) network[size] = '\0';
    if (uname(&system) < 0) return false;
    int length = snprintf(facts, sizeof facts, "%s\n%s\n%lld\n%s\n%s", VERSION, FOLDER, files[0].changed, network,
                          system.nodename);
    if (length < 0 || (size_t)length >= sizeof facts) return false;

    if (!is_below(folder, sizeof folder, "XDG_RUNTIME_DIR", "smartserver") &&
        !is_below(folder, sizeof folder, "HOME", ".cache/smartserver-agent"))
        snprintf(folder, sizeof folder, "/tmp/smartserver-%u", (unsigned)geteuid());
    if (lstat(folder, &found) < 0) return false;
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || found.st_mode & 077) return false;
    address->sun_family = AF_UNIX;
    length = snprintf(address->sun_path, sizeof address->sun_path, "%s/%08x.zygote", folder, crc32_of(facts));
    return length > 0 && (size_t)length < sizeof address->sun_path;
}

/* -- who answers */

struct facts {
    size_t size;
    char bytes[MAX_FACTS];
};

/* Read what there is to a file's end; -1: it cannot be read, or there is more than room for it. */
static ssize_t read_file(int folder, const char *name, char *bytes, size_t room) {
    int file = openat(folder, name, O_RDONLY | O_CLOEXEC);
    ssize_t got = -1;
    size_t size = 0;
    if (file < 0) return -1;
    while (size < room && (got = read(file, bytes + size, room - size)) > 0) size += (size_t)got;
    int why = errno;
    close(file);
    errno = why;
    return got == 0 ? (ssize_t)size : -1;
}

/* Add what a file or a link says; nothing where this system has no such thing. */
static bool add_fact(struct facts *to, int folder, const char *name, bool is_link) {
    char *end = to->bytes + to->size;
    size_t room = sizeof to->bytes - to->size;
    errno = 0;
    ssize_t size = is_link ? readlinkat(folder, name, end, room) : read_file(folder, name, end, room);
    if (size < 0 && errno != ENOENT && errno != EINVAL) return false;
    to->size += size < 0 ? 0 : (size_t)size;
    if (to->size == sizeof to->bytes) return false;
    to->bytes[to->size++] = '\n';
    return true;
}

/* Keep those lines of /proc/PROCESS/status that say what a process may do. */
static bool add_status(struct facts *to, int folder) {
    static const char *const lines[] = {"Uid:", "Gid:", "Groups:", "Cap", "NoNewPrivs:", "Seccomp"};
    static char status[MAX_FACTS];
    ssize_t size = read_file(folder, "status", status, sizeof status - 1);
    if (size < 0) return false;
    status[size] = '\0';
    for (char *line = strtok(status, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (begins_with_any(line, lines, COUNT(lines))) {
            size_t length = strlen(line);
            if (length >= sizeof to->bytes - to->size) return false;
            memcpy(to->bytes + to->size, line, length);
            to->size += length;
        }
    return true;
}

/* What a process may do, of its folder in /proc. */
static bool find_bounds(struct facts *to, int folder) {
    static const char *const links[] = {"ns/cgroup", "ns/ipc",  "ns/mnt",  "ns/net",
                                        "ns/pid",    "ns/time", "ns/user", "ns/uts"};
    static const char *const labels[] = {"attr/current", "attr/apparmor/current"};
    struct stat root;
    to->size = 0;
    for (size_t at = 0; at < COUNT(links); at++)
        if (!add_fact(to, folder, links[at], true)) return false;
    for (size_t at = 0; at < COUNT(labels); at++)
        if (!add_fact(to, folder, labels[at], false)) return false;
    if (fstatat(folder, "root", &root, 0) < 0 || sizeof root > sizeof to->bytes - to->size) return false;
    int length = snprintf(to->bytes + to->size, sizeof to->bytes - to->size, "%llu:%llu\n",
                          (unsigned long long)root.st_dev, (unsigned long long)root.st_ino);
    to->size += (size_t)length;
    return to->size < sizeof to->bytes && add_status(to, folder);
}

/* Whether the process at the other end has its number still; a kernel before Linux 6.5 cannot tell. */
static bool has_number(int connection) {
    int process;
    socklen_t size = sizeof process;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &process, &size) < 0) return errno == ENOPROTOOPT;
    bool is_there = syscall(SYS_pidfd_send_signal, process, 0, NULL, 0) == 0;
    close(process);
    return is_there;
}

/* Whether a process, of its folder in /proc, is the interpreter and may do the same as this one. */
static bool is_agent(int folder) {
    static struct facts there, here;
    struct stat program, interpreter;
    if (fstatat(folder, "exe", &program, 0) < 0 || stat(PYTHON, &interpreter) < 0) return false;
    if (program.st_dev != interpreter.st_dev || program.st_ino != interpreter.st_ino) return false;
    int own = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) return false;
    bool is_same = find_bounds(&there, folder) && find_bounds(&here, own) && there.size == here.size &&
                   memcmp(there.bytes, here.bytes, here.size) == 0;
    close(own);
    return is_same;
}

/* Whether an agent listens at the other end. Its folder in /proc stays its own, whose number that is later on. */
static bool is_from_agent(int connection) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    char path[64];
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) return false;
    if (peer.uid != geteuid() || peer.pid == 0) return false;
    snprintf(path, sizeof path, "/proc/%d", (int)peer.pid);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return false;
    bool is_one = has_number(connection) && is_agent(folder);
    close(folder);
    return is_one;
}

/* A connection to the zygote, or -1. */
static int connect_to_zygote(void) {
    struct sockaddr_un address = {0};
    struct timeval patience = {.tv_sec = TIME_TO_ANSWER};
    if (!find_socket(&address)) return -1;
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made < 0) return -1;
    if (connect(made, (struct sockaddr *)&address, sizeof address) < 0 ||
        !is_from_agent(made) || fcntl(made, F_SETFL, 0) < 0 ||
        setsockopt(made, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
        setsockopt(made, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0) {
        close(made);
        return -1;
    }
    return made;
}

/* -- what is handed over */

static bool add(const char *bytes, size_t size) {
    if (size > sizeof packet - packet_size) return false;
    memcpy(packet + packet_size, bytes, size);
    packet_size += size;
    return true;
}

static bool add_field(const char *text) { return add(text, strlen(text) + 1); }

/* The variable that Python sets as it starts in the locale C (PEP 538); NULL: none. */
static char *coerced_locale(void) {
    static char *const made[] = {"LC_CTYPE=C.UTF-8", "LC_CTYPE=C.utf8", "LC_CTYPE=UTF-8"};
    setlocale(LC_CTYPE, ""); /* It stays C where there is none of that name. */
    const char *locale = setlocale(LC_CTYPE, NULL);
    if (locale == NULL || strcmp(locale, "C") != 0 || is_set("LC_ALL")) return NULL;
    for (size_t at = 0; at < COUNT(made); at++)
        if (setlocale(LC_CTYPE, strchr(made[at], '=') + 1) != NULL && *nl_langinfo(CODESET) != '\0') return made[at];
    return NULL;
}

static int compare(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

/* Find the variables as Python has them; false: one has no name, or is there twice. */
static bool find_variables(void) {
    static char *sorted[MAX_VARIABLES];
    char *locale = coerced_locale();
    for (char **each = environ; *each != NULL; each++) {
        if (locale != NULL && starts_with(*each, "LC_CTYPE=")) continue;
        if (variables_count == MAX_VARIABLES - 1 || **each == '=' || strchr(*each, '=') == NULL) return false;
        variables[variables_count++] = *each;
    }
    if (locale != NULL) variables[variables_count++] = locale;
    memcpy(sorted, variables, variables_count * sizeof *sorted);
    qsort(sorted, variables_count, sizeof *sorted, compare);
    for (size_t at = 1; at < variables_count; at++)
        if (strncmp(sorted[at - 1], sorted[at], (size_t)(strchr(sorted[at], '=') - sorted[at]) + 1) == 0) return false;
    return true;
}

static bool send_with(int worker, const char *bytes, size_t size, const int *descriptors, size_t count) {
    union {
        char room[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr aligned;
    } beside = {.room = {0}};
    struct iovec content = {.iov_base = (char *)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &content, .msg_iovlen = 1, .msg_control = beside.room};
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    return sendmsg(worker, &message, MSG_NOSIGNAL) == (ssize_t)size;
}

/* The command's words; those of git's have no name in front. */
static bool add_words(int count, char *const *words) {
    char number[32];
    bool is_complete;
#ifdef NAME
    snprintf(number, sizeof number, "%d", count);
    is_complete = add_field(number) && add_field(NAME);
#else
    snprintf(number, sizeof number, "%d", count - 1);
    is_complete = add_field(number);
#endif
    for (int at = 1; is_complete && at < count; at++) is_complete = add_field(words[at]);
    return is_complete;
}

/* Have a worker begin the command: the connection to it. -1: nothing was done, and it is to be run here. */
static int hand_over(int count, char *const *words) {
    static const int streams[] = {0, 1, 2};
    char parent[32], answer;
    int worker = connect_to_zygote();
    if (worker < 0) return -1;
    snprintf(parent, sizeof parent, "%d", (int)getppid());
    bool is_complete = find_variables() && add_field(parent) && add_words(count, words);
    for (size_t at = 0; is_complete && at < variables_count; at++) is_complete = add_field(variables[at]);
    int folder = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    bool is_begun = is_complete && folder >= 0 && send_with(worker, packet, packet_size - 1, &folder, 1) &&
                    recv(worker, &answer, 1, 0) == 1 && answer == 'a' && send_with(worker, "b", 1, streams, 3);
    if (folder >= 0) close(folder);
    if (!is_begun) close(worker);
    return is_begun ? worker : -1;
}

/* -- until the worker ends */

static int worker_to_tell;
static volatile pid_t program; /* That runs at this terminal; 0: none. */

static volatile sig_atomic_t first_signal; /* 0: none came. */

/* End by a signal, though the worker has not: it may be stopped. */
static void end_by(int number) {
    sigset_t its;
    sigemptyset(&its);
    sigaddset(&its, number);
    signal(number, SIG_DFL);
    kill(getpid(), number);
    sigprocmask(SIG_UNBLOCK, &its, NULL);
}

static void give_up(int number) {
    (void)number;
    end_by(first_signal);
}

static void pass_on(int number) {
    int before = errno;
    char byte = (char)number;
    bool is_first = first_signal == 0;
    if (is_first) {
        first_signal = number;
        alarm(TIME_TO_END);
    }
    send(worker_to_tell, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (program > 0) kill(program, number);
    if (!is_first) end_by(number);
    errno = before;
}

static void close_all_above_2(void) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, 3, ~0U, 0) == 0) return;
#endif
    for (int each = 3; each < 1024; each++) close(each);
}

/* Become a program, with all as a shell would have it. */
static void become(char **words, char **its_variables, int input, int output, bool is_quiet, const sigset_t *mask) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction now;
    for (size_t at = 0; at < COUNT(signals); at++)
        if (sigaction(signals[at], NULL, &now) == 0 && now.sa_handler == pass_on) signal(signals[at], SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    int errors = is_quiet ? open("/dev/null", O_WRONLY) : 2;
    if (dup2(input, 0) == 0 && dup2(output, 1) == 1 && errors >= 0 && dup2(errors, 2) == 2) {
        close_all_above_2();
        sigprocmask(SIG_SETMASK, mask, NULL);
        environ = its_variables;
        execvp(words[0], words);
    }
    _exit(127);
}

/* Read all that a program says, keep what there is room for, and wait for its end: the bytes, 0 where it failed. */
static size_t output_of(int output, char *kept, size_t room) {
    char rest[4096];
    size_t size = 0;
    ssize_t got;
    while ((got = size < room ? read(output, kept + size, room - size) : read(output, rest, sizeof rest)) > 0)
        size += size < room ? (size_t)got : 0;
    siginfo_t end;
    int status = -1;
    while (waitid(P_PID, (id_t)program, &end, WEXITED | WNOWAIT) < 0 && errno == EINTR) continue;
    pid_t ended = program;
    program = 0; /* Before the number may be another's. */
    return waitpid(ended, &status, 0) == ended && status == 0 && got == 0 ? size : 0;
}

/* Run the program that a packet asks for: the bytes of its output. */
static size_t run_here(char *request, size_t size, char *kept, size_t room) {
    static char *fields[MAX_PACKET + 1], *merged[MAX_VARIABLES + MAX_PACKET + 1];
    size_t count = 0, merged_count = 0;
    for (char *each = request; each <= request + size; each += strlen(each) + 1) fields[count++] = each;
    size_t words_count = count > 3 ? strtoul(fields[2], NULL, 10) : 0;
    if (words_count < 1 || words_count > count - 3) return 0;
    char **words = fields + 3, **added = words + words_count;
    size_t added_count = count - 3 - words_count;
    for (size_t at = 0; at < added_count; at++)
        if (strchr(added[at], '=') == NULL) return 0;
    for (size_t own = 0; own < variables_count; own++) {
        size_t name = (size_t)(strchr(variables[own], '=') - variables[own]) + 1;
        bool is_replaced = false;
        for (size_t at = 0; at < added_count; at++) is_replaced |= strncmp(variables[own], added[at], name) == 0;
        if (!is_replaced) merged[merged_count++] = variables[own];
    }
    memcpy(merged + merged_count, added, added_count * sizeof *added);
    merged[merged_count + added_count] = NULL;
    words[words_count] = NULL;

    /* In memory, so that neither side waits for the other. */
    int input = memfd_create("input", MFD_CLOEXEC), output[2];
    size_t said = strlen(fields[1]), made = 0;
    if (input < 0) return 0;
    if (write(input, fields[1], said) == (ssize_t)said && lseek(input, 0, SEEK_SET) == 0 && pipe2(output, O_CLOEXEC) == 0) {
        sigset_t all, before;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, &before);
        program = fork();
        if (program == 0) become(words, merged, input, output[1], *fields[0] == 'q', &before);
        sigprocmask(SIG_SETMASK, &before, NULL);
        close(output[1]);
        if (program > 0) made = output_of(output[0], kept, room);
        close(output[0]);
    }
    close(input);
    return made;
}

/* Pass signals on, and run what the worker asks for, until it ends: its exit status. */
static int wait_for(int worker) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    static char said[MAX_PACKET + 1], reply[MAX_PACKET];
    struct sigaction passing = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, before;
    struct timeval forever = {0};
    sigset_t late;
    sigemptyset(&late);
    sigaddset(&late, SIGALRM);
    for (size_t at = 0; at < COUNT(signals); at++) sigaddset(&passing.sa_mask, signals[at]);
    ssize_t size;
    worker_to_tell = worker;
    reply[0] = 'o';
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGALRM, give_up);
    sigprocmask(SIG_UNBLOCK, &late, NULL);
    setsockopt(worker, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof forever);
    setsockopt(worker, SOL_SOCKET, SO_SNDTIMEO, &forever, sizeof forever);
    for (size_t at = 0; at < COUNT(signals); at++)
        if (sigaction(signals[at], NULL, &before) == 0 && before.sa_handler != SIG_IGN) sigaction(signals[at], &passing, NULL);
    for (;;) {
        size = recv(worker, said, MAX_PACKET, 0);
        if (size < 0 && errno == EINTR) continue;
        if (size < 1 || said[0] != 'r') break;
        said[size] = '\0';
        size_t made = run_here(said + 1, (size_t)size - 1, reply + 1, sizeof reply - 1);
        if (send(worker, reply, 1 + made, MSG_NOSIGNAL) < 0) break;
    }
    if (size == 2 && said[0] == 'e') return (unsigned char)said[1];
    return write(2, LAST_WORDS, sizeof LAST_WORDS - 1) < 0 ? 1 : LOST;
}

/* Where this program lies. */
static char *own_path(char *called) {
    static char path[4096];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
    return size > 0 ? path : called;
}

/* Open what is closed of the standard streams, as cli/streams.py does: else a socket would get its number. */
static void open_streams(void) {
    static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
    for (int stream = 0; stream < 3; stream++)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", modes[stream]) != stream) _exit(LOST);
}

int main(int count, char **words) {
    open_streams();
    int worker = is_for_agent(count, words) ? hand_over(count, words) : -1;
    if (worker >= 0) _exit(wait_for(worker));
    char **there = calloc((size_t)count + 5, sizeof *there);
    if (there != NULL) {
        /* PYTHONHOME is that of another Python: this one knows its own. What is started from there still gets it. */
        char *first[] = {PYTHON, is_set("PYTHONHOME") ? "-EP" : "-P", "-c", CODE, own_path(words[0])};
        memcpy(there, first, sizeof first);
        for (int at = 1; at < count; at++) there[4 + at] = words[at];
        execv(PYTHON, there);
    }
    fprintf(stderr, "fatal: hpss: %s: %s\n", PYTHON, strerror(errno));
    return LOST;
}
