/*
 * The load of `npm run bench:peers`: sends requests on some connections and waits for their answers, in the words of HTTP, Redis,
 * NATS or PostgreSQL. It is a C program because two cores must be enough: a load in JavaScript costs as much as a server, and would
 * be the limit that is measured. bench/peers/load.mjs compiles it at the first use.
 *
 *   append   `--depth` requests are outstanding on each connection. What is answered is sent again, in one write.
 *   tail     one writer on a schedule, and readers that look for the mark in what they get: "mark" and eight digits.
 *   count    as append, until `--count` requests are answered: a fixed amount of work.
 *   hold     readers that get nothing more, until the standard input ends.
 *
 * A request is a file in which @CONN@ and @SEQ@ are replaced, padded with zeros to `--width` digits, or not if that is 0. Times are
 * from the write of a request to the read of its answer. "start" and "end" on standard output mark what is measured, one line of
 * JSON after them says what it was. Any answer that is not a success ends the run with code 1.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DEPTH_MAX 64
#define MICROS_MAX 2000000
#define TAILS_MAX 100000

typedef struct {
  char *bytes;
  size_t length, room;
} Text;

typedef struct {
  int fd, index, isReader, hasAnswered, isBlocked;
  long seq;
  Text in, out;
  size_t sent;
  uint64_t sentAt[DEPTH_MAX];
  long first, last;
} Conn;

static const char *mode = "append", *framing = "http";
static int port, connections = 1, depth = 1, width, helloAnswers, readers, count, everyMicros = 5000;
static int warmMs = 200, measureMs = 1000, settleMs = 300;
static Text hello, request, readerHello, readerAgain;
static Conn *conns;
static int epoll;
static uint32_t micros[MICROS_MAX + 1];
static uint64_t tailSentAt[TAILS_MAX];
static long measured, seen, answered;
static int isMeasuring, isOver;
static double seconds, loadSeconds;

static uint64_t now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (uint64_t)at.tv_sec * 1000000u + (uint64_t)at.tv_nsec / 1000u;
}

static void fail(const char *what, const char *bytes, size_t length) {
  fprintf(stderr, "%s: %.*s\n", what, (int)(length > 300 ? 300 : length), bytes == NULL ? "" : bytes);
  exit(1);
}

static void add(Text *text, const char *bytes, size_t length) {
  if (text->length + length > text->room) {
    text->room = (text->length + length) * 2 + 4096;
    text->bytes = realloc(text->bytes, text->room);
    if (text->bytes == NULL) fail("out of memory", NULL, 0);
  }
  if (length > 0) memcpy(text->bytes + text->length, bytes, length);
  text->length += length;
}

static Text readFile(const char *path) {
  Text text = {0};
  char part[65536];
  FILE *file = fopen(path, "rb");
  if (file == NULL) fail("cannot read", path, strlen(path));
  for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;) add(&text, part, got);
  fclose(file);
  return text;
}

static void fill(Text *out, const Text *template, int conn, long seq) {
  const char *at = template->bytes, *end = at + template->length;
  char number[32];
  while (at < end) {
    const char *mark = memchr(at, '@', (size_t)(end - at));
    if (mark == NULL) break;
    int isConn = end - mark >= 6 && memcmp(mark, "@CONN@", 6) == 0;
    int isSeq = end - mark >= 5 && memcmp(mark, "@SEQ@", 5) == 0;
    add(out, at, (size_t)(mark - at) + (isConn || isSeq ? 0 : 1));
    at = mark + (isConn ? 6 : isSeq ? 5 : 1);
    if (!isConn && !isSeq) continue;
    add(out, number, (size_t)snprintf(number, sizeof number, "%0*ld", width, isConn ? (long)conn : seq));
  }
  if (at < end) add(out, at, (size_t)(end - at));
}

static void watch(Conn *conn, int isWriting) {
  struct epoll_event event = {.events = EPOLLIN | (isWriting ? EPOLLOUT : 0u), .data.ptr = conn};
  if (epoll_ctl(epoll, EPOLL_CTL_MOD, conn->fd, &event) != 0) fail("epoll", NULL, 0);
}

static void flushOut(Conn *conn) {
  while (conn->sent < conn->out.length) {
    ssize_t did = write(conn->fd, conn->out.bytes + conn->sent, conn->out.length - conn->sent);
    if (did < 0 && errno != EAGAIN) fail("cannot write", strerror(errno), strlen(strerror(errno)));
    if (did < 0) {
      if (!conn->isBlocked) watch(conn, 1);
      conn->isBlocked = 1;
      return;
    }
    conn->sent += (size_t)did;
  }
  if (conn->isBlocked) watch(conn, 0);
  conn->isBlocked = 0;
  conn->sent = conn->out.length = 0;
}

static size_t lineEnd(const char *bytes, size_t length) {
  const char *end = memmem(bytes, length, "\r\n", 2);
  return end == NULL ? 0 : (size_t)(end - bytes) + 2;
}

static size_t frameHttp(const char *bytes, size_t length, int *answers) {
  const char *end = memmem(bytes, length, "\r\n\r\n", 4);
  if (end == NULL) return 0;
  size_t head = (size_t)(end - bytes) + 4, body = 0;
  int status = atoi(bytes + 9);
  if (status != 200 && status != 201 && status != 204) fail("answered with", bytes, length);
  if (status != 204) {
    for (const char *at = bytes; at < end; at = (const char *)memchr(at, '\n', (size_t)(end - at) + 2) + 1) {
      if (strncasecmp(at, "content-length:", 15) == 0) body = (size_t)atol(at + 15);
    }
  }
  if (head + body > length) return 0;
  *answers += 1;
  return head + body;
}

static size_t frameRedis(const char *bytes, size_t length, int *answers) {
  size_t line = lineEnd(bytes, length);
  if (line == 0) return 0;
  if (bytes[0] == '-') fail("answered with", bytes, length);
  long more = bytes[0] == '$' ? atol(bytes + 1) : -1;
  size_t all = line + (more >= 0 ? (size_t)more + 2 : 0);
  if (all > length) return 0;
  *answers += 1;
  return all;
}

static size_t frameNats(Conn *conn, const char *bytes, size_t length, int *answers) {
  size_t line = lineEnd(bytes, length);
  if (line == 0) return 0;
  if (bytes[0] == '-') fail("answered with", bytes, length);
  if (strncmp(bytes, "PING", 4) == 0) add(&conn->out, "PONG\r\n", 6);
  if (strncmp(bytes, "PONG", 4) == 0) *answers += 1;
  if (strncmp(bytes, "MSG", 3) != 0 && strncmp(bytes, "HMSG", 4) != 0) return line;
  size_t at = line - 3;
  while (at > 0 && bytes[at] != ' ') at -= 1;
  size_t all = line + (size_t)atol(bytes + at + 1) + 2;
  if (all > length) return 0;
  if (memmem(bytes + line, all - line, "\"error\"", 7) != NULL) fail("answered with", bytes, all);
  *answers += 1;
  return all;
}

static size_t framePostgres(const char *bytes, size_t length, int *answers) {
  if (length < 5) return 0;
  uint32_t size;
  memcpy(&size, bytes + 1, 4);
  size = ntohl(size);
  if (length < size + 1u) return 0;
  if (bytes[0] == 'E') fail("answered with", bytes + 5, size - 4u);
  if (bytes[0] == 'Z') *answers += 1;
  return size + 1u;
}

static int takeAnswers(Conn *conn) {
  size_t at = 0;
  int answers = 0;
  while (at < conn->in.length) {
    const char *bytes = conn->in.bytes + at;
    size_t length = conn->in.length - at, used;
    if (framing[0] == 'h') used = frameHttp(bytes, length, &answers);
    else if (framing[0] == 'r') used = frameRedis(bytes, length, &answers);
    else if (framing[0] == 'n') used = frameNats(conn, bytes, length, &answers);
    else used = framePostgres(bytes, length, &answers);
    if (used == 0) break;
    at += used;
  }
  memmove(conn->in.bytes, conn->in.bytes + at, conn->in.length - at);
  conn->in.length -= at;
  return answers;
}

static void readIn(Conn *conn) {
  if (conn->in.room - conn->in.length < 65536) {
    size_t length = conn->in.length;
    add(&conn->in, NULL, 0);
    conn->in.room = length * 2 + 131072;
    conn->in.bytes = realloc(conn->in.bytes, conn->in.room);
  }
  ssize_t got = read(conn->fd, conn->in.bytes + conn->in.length, conn->in.room - conn->in.length);
  if (got == 0) fail("the server closed a connection", conn->in.bytes, conn->in.length);
  if (got < 0 && errno != EAGAIN) fail("cannot read", strerror(errno), strlen(strerror(errno)));
  if (got > 0) conn->in.length += (size_t)got;
}

static void record(uint64_t took) {
  micros[took > MICROS_MAX ? MICROS_MAX : took] += 1;
  measured += 1;
}

static void sendNext(Conn *conn, int requests, uint64_t at) {
  for (int more = 0; more < requests; more += 1) {
    fill(&conn->out, &request, conn->index, conn->seq);
    if (conn->seq < TAILS_MAX) tailSentAt[conn->seq] = at;
    conn->seq += 1;
    conn->sentAt[conn->last % DEPTH_MAX] = at;
    conn->last += 1;
  }
  flushOut(conn);
}

static void takeMarks(Conn *conn, uint64_t at) {
  const char *from = conn->in.bytes, *end = from + conn->in.length;
  int marks = 0;
  for (const char *mark; (mark = memmem(from, (size_t)(end - from), "mark", 4)) != NULL && end - mark >= 12; from = mark + 12) {
    char digits[9] = {0};
    memcpy(digits, mark + 4, 8);
    long seq = atol(digits);
    seen += 1;
    marks += 1;
    if (seq < TAILS_MAX && tailSentAt[seq] > 0) record(at - tailSentAt[seq]);
  }
  size_t left = (size_t)(end - from) < 16 ? (size_t)(end - from) : 16;
  memmove(conn->in.bytes, end - left, left);
  conn->in.length = left;
  if (marks > 0 && readerAgain.length > 0) {
    fill(&conn->out, &readerAgain, conn->index, 0);
    flushOut(conn);
  }
}

static void serve(Conn *conn, uint32_t events) {
  if (events & EPOLLOUT) flushOut(conn);
  if (!(events & ~(uint32_t)EPOLLOUT)) return;
  readIn(conn);
  uint64_t at = now();
  conn->hasAnswered = 1;
  if (conn->isReader) {
    takeMarks(conn, at);
    return;
  }
  int answers = takeAnswers(conn);
  for (int one = 0; one < answers; one += 1) {
    if (conn->first >= conn->last) fail("an answer to nothing", NULL, 0);
    if (isMeasuring && mode[0] == 'a') record(at - conn->sentAt[conn->first % DEPTH_MAX]);
    conn->first += 1;
  }
  answered += answers;
  if ((mode[0] == 'a' || (mode[0] == 'c' && answered < count)) && !isOver && answers > 0) sendNext(conn, answers, at);
  else if (conn->out.length > 0) flushOut(conn);
}

/* Serves events until the time, or until `isDone`. */
static void turnUntil(uint64_t end, int (*isDone)(void)) {
  struct epoll_event events[256];
  for (;;) {
    uint64_t at = now();
    if (at >= end || (isDone != NULL && isDone())) return;
    int ready = epoll_wait(epoll, events, 256, (int)((end - at) / 1000) + (end - at < 1000 ? 0 : 1));
    for (int one = 0; one < ready; one += 1) serve(events[one].data.ptr, events[one].events);
  }
}

static void openOne(Conn *conn, int index, int isReader) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int on = 1;
  conn->index = index;
  conn->isReader = isReader;
  conn->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (conn->fd < 0 || connect(conn->fd, (struct sockaddr *)&address, sizeof address) != 0) fail("cannot connect", strerror(errno), strlen(strerror(errno)));
  setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const Text *first = isReader ? &readerHello : &hello;
  fill(&conn->out, first, index, 0);
  for (size_t sent = 0; sent < conn->out.length;) {
    ssize_t did = write(conn->fd, conn->out.bytes + sent, conn->out.length - sent);
    if (did <= 0) fail("cannot greet", NULL, 0);
    sent += (size_t)did;
  }
  conn->out.length = 0;
  for (int left = isReader ? 0 : helloAnswers; left > 0; left -= takeAnswers(conn)) readIn(conn);
  fcntl(conn->fd, F_SETFL, fcntl(conn->fd, F_GETFL) | O_NONBLOCK);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = conn};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, conn->fd, &event) != 0) fail("epoll", NULL, 0);
}

static int areAllAnswered(void) {
  for (int one = 0; one < connections; one += 1) if (conns[one].first < conns[one].last) return 0;
  return 1;
}

static int haveAllReaders(void) {
  for (int one = connections; one < connections + readers; one += 1) if (!conns[one].hasAnswered) return 0;
  return 1;
}

static uint64_t quantile(double share) {
  long left = (long)((double)measured * share);
  for (uint64_t at = 0; at <= MICROS_MAX; at += 1) if ((left -= micros[at]) < 0) return at;
  return MICROS_MAX;
}

static void say(const char *word) {
  printf("%s\n", word);
  fflush(stdout);
}

/* The processes of the server are looked at before its connections end. */
static void sayEnd(void) {
  say("end");
  if (getchar() == EOF) return;
}

/* CPU time of this process. */
static double cpuSeconds(void) {
  struct rusage used;
  getrusage(RUSAGE_SELF, &used);
  return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void runAppends(void) {
  for (int one = 0; one < connections; one += 1) sendNext(&conns[one], depth, now());
  turnUntil(now() + (uint64_t)warmMs * 1000u, NULL);
  isMeasuring = 1;
  say("start");
  uint64_t from = now();
  double cpuFrom = cpuSeconds();
  turnUntil(from + (uint64_t)measureMs * 1000u, NULL);
  seconds = (double)(now() - from) / 1e6;
  loadSeconds = cpuSeconds() - cpuFrom;
  isMeasuring = 0;
  sayEnd();
  isOver = 1;
  turnUntil(now() + 10000000u, areAllAnswered);
}

static void runCount(void) {
  say("start");
  for (int one = 0; one < connections; one += 1) sendNext(&conns[one], depth, now());
  turnUntil(now() + 60000000u, areAllAnswered);
  sayEnd();
  if (!areAllAnswered()) fail("not everything was answered", NULL, 0);
}

static long expected;

static int haveAllMarks(void) { return seen >= expected; }

static void runTail(void) {
  uint64_t next = now();
  say("start");
  for (int sent = 0; sent < count; sent += 1) {
    turnUntil(next, NULL);
    turnUntil(now() + 10000000u, areAllAnswered);
    if (readerAgain.length > 0) {
      // A reader that must ask again asks before the next record comes.
      turnUntil(now() + 10000000u, haveAllMarks);
      turnUntil(now() + 1000u, NULL);
    }
    expected += readers;
    uint64_t at = now();
    next = next + (uint64_t)everyMicros > at ? next + (uint64_t)everyMicros : at;
    sendNext(&conns[0], 1, at);
  }
  turnUntil(now() + 10000000u, areAllAnswered);
  turnUntil(now() + 10000000u, haveAllMarks);
  sayEnd();
  if (!haveAllMarks()) fail("not every reader got every record", NULL, 0);
}

static void takeOption(const char *name, const char *value) {
  struct { const char *name; int *number; } numbers[] = {
    {"--port", &port}, {"--connections", &connections}, {"--depth", &depth}, {"--width", &width}, {"--hello-answers", &helloAnswers},
    {"--readers", &readers}, {"--count", &count}, {"--every-us", &everyMicros}, {"--warm-ms", &warmMs}, {"--measure-ms", &measureMs},
    {"--settle-ms", &settleMs}};
  struct { const char *name; Text *text; } files[] = {
    {"--hello", &hello}, {"--request", &request}, {"--reader-hello", &readerHello}, {"--reader-again", &readerAgain}};
  for (size_t at = 0; at < sizeof numbers / sizeof *numbers; at += 1) if (strcmp(name, numbers[at].name) == 0) { *numbers[at].number = atoi(value); return; }
  for (size_t at = 0; at < sizeof files / sizeof *files; at += 1) if (strcmp(name, files[at].name) == 0) { *files[at].text = readFile(value); return; }
  if (strcmp(name, "--framing") == 0) framing = value;
  else if (strcmp(name, "--mode") == 0) mode = value;
  else fail("there is no option", name, strlen(name));
}

int main(int argc, char **argv) {
  for (int at = 1; at + 1 < argc; at += 2) takeOption(argv[at], argv[at + 1]);
  if (depth > DEPTH_MAX || (mode[0] == 't' && count > TAILS_MAX)) fail("too many at once", NULL, 0);
  epoll = epoll_create1(0);
  conns = calloc((size_t)(connections + readers), sizeof *conns);
  for (int one = 0; one < connections + readers; one += 1) openOne(&conns[one], one, one >= connections);
  turnUntil(now() + 30000000u, haveAllReaders);
  if (!haveAllReaders()) fail("not every reader was answered", NULL, 0);
  if (readers > 0) turnUntil(now() + (uint64_t)settleMs * 1000u, NULL);
  if (mode[0] == 'a') runAppends();
  else if (mode[0] == 'c') runCount();
  else if (mode[0] == 't') runTail();
  else {
    say("start");
    while (getchar() != EOF) continue;
  }
  printf("{\"count\":%ld,\"answered\":%ld,\"seconds\":%.6f,\"loadSeconds\":%.6f,\"p50Micros\":%lu,\"p99Micros\":%lu,\"maxMicros\":%lu}\n", measured, answered, seconds, loadSeconds, quantile(0.5), quantile(0.99), quantile(1.0 - 1e-9));
  return 0;
}
