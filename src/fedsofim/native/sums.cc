// Clipped sums of a linear softmax head for every client and many θ at once, as a function that XLA can call.
//
// Records are read once, a tile at a time: both products, the softmax and the clipping happen while the tile is in
// cache (tile.h). Tiles go to XLA's own threads in chunks. A chunk's sum does not depend on who computes it, and chunks
// are added up in their order, so equal inputs give bit-equal sums whatever the number of threads.
#include <string.h>

#include "crew.h"
#include "tile.h"

namespace fedsofim {

constexpr int64_t kChunks = 32;             // at most
constexpr int64_t kTilesInChunk = 4;        // at least: a chunk ends with writing its sums
constexpr int64_t kLanesInTile = kGroup / kLanes;  // at most: a tile is part of one group
constexpr int64_t kTileNumbers = 1 << 13;   // features of a tile: 32 kB, and as much for their transpose
constexpr int64_t kSliceNumbers = 1 << 15;  // sums that a thread adds to in turn: 256 kB of doubles
constexpr int64_t kMostPartial = 1 << 23;   // sums at the chunks' ends
constexpr double kMostAdded = 0x1p39;       // additions in doubles times records: these round by 2^-53 each, so by 2^-14

inline int64_t lanes_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// What is summed. x (blocks, size, p), y and weight (blocks, size), owner (blocks,) in ascending order,
// theta (settings, thetas, p+1, classes) with one θ for all or one per client, out (settings, clients, p+1, classes), each
// number as the sum of two floats.
struct Problem {
  const float *x, *weight, *theta;
  const int32_t *y, *owner;
  float *out, *rest;
  int64_t blocks, size, p, settings, thetas, clients, classes;
  float clip;
  int64_t reach;  // 0, or of how many places the records with a weight are packed together: docs/clipping.md
  float scale;    // of weights: a power of two, not below the largest

  int64_t d() const { return (p + 1) * classes; }
  int64_t width() const { return lanes_up(p); }
  int64_t raw() const { return classes * (width() + kLanes); }  // totals: features by class, then 16 of each bias
  int64_t tile() const { return kLanes * least(most(kTileNumbers / width() / kLanes, 1), kLanesInTile); }
  int64_t span() const { return reach ? reach : tile(); }  // places that are read together
  int64_t tiles_in_block() const { return (size + span() - 1) / span(); }
  int64_t tiles() const { return blocks * tiles_in_block(); }
  int64_t owner_of(int64_t tile) const { return owner[tile / tiles_in_block()]; }
  const float* theta_of(int64_t setting, int64_t client) const {
    return theta + (setting * thetas + (thetas == 1 ? 0 : client)) * d();
  }
};

// Settings [first, first + count) of a problem, in chunks of tiles.
struct Job {
  Problem problem;
  int64_t first, count, chunks;
  double* partial;  // (chunks, 2, count, raw): totals of a chunk's first and last client, who may have records elsewhere
  bool failed;

  double* end_of(int64_t chunk, int last) const { return partial + (2 * chunk + last) * count * problem.raw(); }
  int64_t start(int64_t chunk) const { return chunk * problem.tiles() / chunks; }
  void run(Queue* queue, int64_t chunk);
};

// What one thread works in: `part` has the sums of the group that is being read, `totals` those of groups before.
struct Bench {
  float *rows, *columns, *z, *weight, *part, *memory;
  double *own, *totals;  // totals: its own, or a chunk's end
  int32_t* y;

  Bench(const Problem& p, int64_t count) {
    const int64_t tile = p.tile(), width = p.width();
    const int64_t sizes[] = {tile * width, tile * width, p.classes * tile, tile, tile, count * p.raw(),
                             2 * count * p.raw()};
    int64_t total = 0;
    for (int64_t n : sizes) total += lanes_up(n);
    memory = (float*)aligned_alloc(64, 4 * total);
    float* parts[7];
    float* at = memory;
    for (int i = 0; i < 7; i++) parts[i] = at, at += lanes_up(sizes[i]);
    rows = parts[0], columns = parts[1], z = parts[2], weight = parts[3], y = (int32_t*)parts[4];
    part = parts[5], own = (double*)parts[6];
  }
  ~Bench() { free(memory); }
  Bench(const Bench&) = delete;
};

// The records of one tile, `width` numbers apart. Those that do not fill the lanes are on the bench too, with padding.
struct Tile {
  const float* rows;
  int64_t count;
  bool empty;
};

Tile fetch(const Problem& p, int64_t number, Bench& bench) {
  const int64_t block = number / p.tiles_in_block(), at = number % p.tiles_in_block() * p.tile();
  const int64_t n = least(p.tile(), p.size - at), whole = lanes_up(n), from = block * p.size + at;
  memset(bench.weight, 0, 4 * whole), memset(bench.y, 0, 4 * whole);
  memcpy(bench.y, p.y + from, 4 * n);
  bool empty = true;
  for (int64_t i = 0; i < n; i++) {
    bench.weight[i] = p.weight[from + i] / p.scale;
    empty &= bench.weight[i] == 0.0f;
  }
  const bool narrow = p.p < p.width();
  const int64_t first = narrow ? 0 : n / kLanes * kLanes;  // who is copied
  memset(bench.rows + first * p.width(), 0, 4 * (whole - first) * p.width());
  for (int64_t i = first; i < n; i++) memcpy(bench.rows + i * p.width(), p.x + (from + i) * p.p, 4 * p.p);
  return {narrow ? bench.rows : p.x + from * p.p, n, empty};
}

// How many of `places` records, from the one at `from` on, have a weight, and which: of more than kGroup not all. Without a
// branch, which nothing could foretell; and those found are sent for.
int64_t drawn(const Problem& p, int64_t from, int64_t places, int64_t (&found)[kGroup + 1]) {
  int64_t n = 0;
  for (int64_t i = from; i < from + places; i++) {
    found[least(n, kGroup)] = i;
    n += p.weight[i] != 0.0f;
  }
  for (int64_t i = 0; i < least(n, kGroup); i++)
    for (int64_t k = 0; k < p.p; k += kLanes) __builtin_prefetch(p.x + found[i] * p.p + k);
  return n;
}

// These records side by side on the bench. A record's arithmetic is that of its lane, the same in every lane and tile, so
// what it is clipped to does not depend on who else was drawn, to the last bit.
Tile packed(const Problem& p, const int64_t* records, int64_t n, Bench& bench) {
  const int64_t whole = lanes_up(n), width = p.width();
  memset(bench.weight, 0, 4 * whole), memset(bench.y, 0, 4 * whole);
  const int64_t first = p.p < width ? 0 : n;  // from where on rows have padding
  memset(bench.rows + first * width, 0, 4 * (whole - first) * width);
  for (int64_t i = 0; i < n; i++) {
    bench.weight[i] = p.weight[records[i]] / p.scale, bench.y[i] = p.y[records[i]];
    memcpy(bench.rows + i * width, p.x + records[i] * p.p, 4 * p.p);
  }
  return {bench.rows, n, false};
}

// Where a setting's sums are on a bench.
Group group_of(const Job& job, int64_t setting, bool begins, bool ends, Bench& bench) {
  const Problem& p = job.problem;
  return {bench.part + setting * p.raw(), bench.totals + setting * p.raw(), begins, ends};
}

// Biases: 16 sums for each class, each of every sixteenth record.
void add_bias(const Problem& p, const float* z, int64_t stride, int64_t count, Group g) {
  for (int64_t c = 0; c < p.classes; c++, g = g + kLanes) {
    Lanes sum = g.begin();
    for (int64_t i = 0; i < count; i += kLanes) sum += load(z + c * stride + i);
    g.end(sum);
  }
}

// The tile with zeros for records whose features have no finite length: 0·NaN would reach all the others.
Tile cleaned(const Problem& p, Tile tile, const Lanes* length, Bench& bench) {
  if (tile.rows != bench.rows) memcpy(bench.rows, tile.rows, 4 * tile.count * p.width());
  for (int64_t i = 0; i < tile.count; i++)
    if (!(length[i / kLanes][i % kLanes] < INFINITY)) memset(bench.rows + i * p.width(), 0, 4 * p.width());
  return {bench.rows, tile.count, tile.empty};
}

// Transposes a tile and measures its records; true if all have a finite length.
bool measure(const Problem& p, const Tile& tile, Bench& bench, Lanes* length) {
  Ints finite = all_of<int32_t>(-1);
  for (int64_t i = 0; i < tile.count; i += kLanes) {
    float* columns = bench.columns + i * p.width();
    const float* rows = (i + kLanes <= tile.count ? tile.rows : bench.rows) + i * p.width();
    for (int64_t k = 0; k < p.width(); k += kLanes) transpose(rows + k, p.width(), columns + k * kLanes);
    length[i / kLanes] = root(square_norm(columns, p.width()));  // what is beyond p is 0
    finite = finite & (length[i / kLanes] < all(INFINITY));
  }
  int32_t all_finite = -1;
  for (int i = 0; i < kLanes; i++) all_finite &= finite[i];
  return all_finite;
}

// Adds a tile's clipped gradients to the sums of every setting.
void add_tile(const Job& job, Tile tile, int64_t client, bool begins, bool ends, Bench& bench) {
  const Problem& p = job.problem;
  const int64_t width = p.width(), stride = p.tile();
  Lanes length[kLanesInTile];
  if (!measure(p, tile, bench, length)) tile = cleaned(p, tile, length, bench);
  for (int64_t s = 0; s < job.count; s++) {
    const float* theta = p.theta_of(job.first + s, client);
    for (int64_t i = 0; i < tile.count; i += kLanes) {
      const float* columns = bench.columns + i * width;
      in_shares(p.classes, [&](int64_t c, int64_t w) {
        with_constant(w, Logits{columns, theta + c, p.p, p.classes, stride, bench.z + c * stride + i});
      });
      residuals(bench.z + i, stride, p.classes, bench.y + i, bench.weight + i, length[i / kLanes], p.clip);
    }
    const Group g = group_of(job, s, begins, ends, bench);
    add_bias(p, bench.z, stride, tile.count, g + p.classes * width);
    in_shares(p.classes, [&](int64_t c, int64_t w) {
      with_constant(w, Outer{tile.rows, bench.z + c * stride, tile.count, stride, width, g + c * width});
    });
  }
}

// Ends a group that no tile ended.
void end_group(const Job& job, Bench& bench) {
  const Problem& p = job.problem;
  for (int64_t s = 0; s < job.count; s++) {
    const Group g = group_of(job, s, false, true, bench);
    for (int64_t i = 0; i < p.raw(); i += kLanes) add(g.total + i, load(g.part + i));
  }
}

// Adds the drawn records of one span: as one group if they are no more than that, else of every kGroup places apart. Which
// of the two follows from who was drawn, and changes this span's roundings only.
void add_drawn(const Job& job, int64_t number, int64_t client, Bench& bench) {
  const Problem& p = job.problem;
  const int64_t block = number / p.tiles_in_block(), at = number % p.tiles_in_block() * p.reach;
  const int64_t places = least(p.reach, p.size - at), begin = block * p.size + at;
  int64_t found[kGroup + 1], n = drawn(p, begin, places, found);
  const bool many = n > kGroup;
  for (int64_t from = 0; from < places; from += many ? kGroup : places) {
    if (many) n = drawn(p, begin + from, least(kGroup, places - from), found);
    for (int64_t i = 0; i < n; i += p.tile()) {
      const Tile tile = packed(p, found + i, least(p.tile(), n - i), bench);
      add_tile(job, tile, client, i == 0, i + p.tile() >= n, bench);
    }
  }
}

// Writes the totals of some settings of one client where they belong, in θ's own layout.
void write(const Job& job, const double* totals, int64_t client) {
  const Problem& p = job.problem;
  for (int64_t s = 0; s < job.count; s++, totals += p.raw()) {
    const int64_t to = ((job.first + s) * p.clients + client) * p.d();
    for (int64_t k = 0; k <= p.p; k++)
      for (int64_t c = 0; c < p.classes; c++) {
        double total = k < p.p ? totals[c * p.width() + k] : 0;
        for (int i = 0; k == p.p && i < kLanes; i++) total += totals[p.classes * p.width() + c * kLanes + i];
        total *= p.scale;
        const float nearest = (float)total;
        p.out[to + k * p.classes + c] = nearest;
        p.rest[to + k * p.classes + c] = (float)(total - nearest);
      }
  }
}

// The totals of one client's tiles from `tile` on, within a chunk that stops at `end`; the next client's first tile. Who
// is in a group follows from sizes and weights alone, and a group has at most kGroup records; padding adds zeros.
int64_t run_client(const Job& job, int64_t tile, int64_t end, Bench& bench) {
  const Problem& p = job.problem;
  const int64_t client = p.owner_of(tile);
  int64_t rows = 0;  // in the group so far
  memset(bench.totals, 0, 8 * job.count * p.raw());
  for (; tile < end && p.owner_of(tile) == client; tile++) {
    if (p.reach) {
      add_drawn(job, tile, client, bench);
      continue;
    }
    Tile records = fetch(p, tile, bench);
    if (records.empty) continue;
    const bool begins = rows == 0, ends = rows + records.count + p.tile() > kGroup;
    add_tile(job, records, client, begins, ends, bench);
    rows = ends ? 0 : rows + records.count;
  }
  if (rows) end_group(job, bench);
  return tile;
}

// The sums of a chunk's records. Only its first and its last client may have records in other chunks.
void run_chunk(const Job& job, int64_t chunk, Bench& bench) {
  const Problem& p = job.problem;
  const int64_t begin = job.start(chunk), end = job.start(chunk + 1), first = p.owner_of(begin);
  const int64_t last = p.owner_of(end - 1);
  for (int64_t tile = begin; tile < end;) {
    const int64_t client = p.owner_of(tile);
    const bool elsewhere = client == first || client == last;
    bench.totals = elsewhere ? job.end_of(chunk, client != first) : bench.own;
    tile = run_client(job, tile, end, bench);
    if (!elsewhere) write(job, bench.totals, client);
  }
}

void Job::run(Queue* queue, int64_t chunk) {
  Bench bench(problem, count);
  if (!bench.memory) __atomic_store_n(&failed, true, __ATOMIC_RELAXED);
  for (; chunk < queue->chunks; chunk = queue->take()) {
    if (bench.memory) run_chunk(*this, chunk, bench);
    queue->finish();
  }
}

// Adds up the chunks' ends, which lie in the order of their clients, and writes them.
void join(const Job& job) {
  const Problem& p = job.problem;
  double* totals = nullptr;
  int64_t client = -1;
  for (int64_t chunk = 0; chunk < job.chunks; chunk++) {
    const int64_t owners[] = {p.owner_of(job.start(chunk)), p.owner_of(job.start(chunk + 1) - 1)};
    for (int end = 0; end < (owners[0] == owners[1] ? 1 : 2); end++) {
      double* from = job.end_of(chunk, end);
      if (owners[end] == client) {
        for (int64_t i = 0; i < job.count * p.raw(); i++) totals[i] += from[i];
        continue;
      }
      if (totals) write(job, totals, client);
      totals = from, client = owners[end];
    }
  }
  if (totals) write(job, totals, client);
}

// Settings [first, first + count), on all threads; false if there was no memory, or there are too many records.
bool run_slice(const XLA_FFI_CallFrame* frame, const Problem& problem, int64_t first, int64_t count) {
  const int64_t ends = 2 * count * problem.raw(), fitting = most(1, kMostPartial / ends);
  const int64_t chunks = least(most(1, problem.tiles() / kTilesInChunk), least(kChunks, fitting));
  const int64_t groups = problem.tiles() * ((problem.reach + kGroup - 1) / kGroup + 1);  // of a chunk, at most
  if ((double)(groups / chunks + chunks) * problem.blocks * problem.size > kMostAdded) return false;
  Job job = {problem, first, count, chunks, (double*)malloc(8 * chunks * ends), false};
  const bool fine = job.partial && on_all_threads(frame, chunks, &job) && !job.failed;
  if (fine) join(job);
  free(job.partial);
  return fine;
}

// The least power of two that is not below any weight, so that rounding is small next to the largest of them.
float scale_of(const float* weight, int64_t n) {
  Lanes most = {};
  int64_t i = 0;
  float largest = 0;
  for (; i + kLanes <= n; i += kLanes) most = select(load(weight + i) > most, load(weight + i), most);
  for (; i < n; i++) largest = weight[i] > largest ? weight[i] : largest;
  for (int j = 0; j < kLanes; j++) largest = most[j] > largest ? most[j] : largest;
  float scale = largest > 0 ? ldexpf(1, ilogbf(largest)) : 1;
  return scale < largest ? 2 * scale : scale;
}

// Reads the operands; false where their kinds or sizes do not belong together.
bool read(const XLA_FFI_CallFrame* frame, Problem* p) {
  if (frame->args.size != 7 || frame->rets.size != 2) return false;
  XLA_FFI_Buffer* b[8];
  for (int i = 0; i < 8; i++) b[i] = i < 6 ? operand(frame, i) : result(frame, i - 6);
  const XLA_FFI_Buffer* reach = operand(frame, 6);
  const XLA_FFI_DataType real = XLA_FFI_DataType_F32, whole = XLA_FFI_DataType_S32;
  if (!is(b[0], real, 3) || !is(b[1], whole, 2) || !is(b[2], real, 2) || !is(b[3], whole, 1) || !is(b[4], real, 4) ||
      !is(b[5], real, 0) || !is(reach, whole, 0) || *(int32_t*)reach->data < 0 || !is(b[6], real, 4) || !is(b[7], real, 4))
    return false;
  const int64_t *x = b[0]->dims, *theta = b[4]->dims, *out = b[6]->dims;
  *p = {(float*)b[0]->data, (float*)b[2]->data, (float*)b[4]->data, (int32_t*)b[1]->data, (int32_t*)b[3]->data,
        (float*)b[6]->data, (float*)b[7]->data, x[0], x[1], x[2], theta[0], theta[1], out[1], theta[3], *(float*)b[5]->data,
        *(int32_t*)reach->data, 1};
  for (int i : {1, 2})
    if (b[i]->dims[0] != p->blocks || b[i]->dims[1] != p->size) return false;
  if (p->p < 1 || b[3]->dims[0] != p->blocks || (p->thetas != 1 && p->thetas != p->clients)) return false;
  if (theta[2] != p->p + 1 || out[0] != p->settings || out[2] != p->p + 1 || out[3] != p->classes) return false;
  for (int i = 0; i < 4; i++)
    if (b[7]->dims[i] != out[i]) return false;
  for (int64_t i = 0; i < p->blocks; i++)
    if (p->owner[i] < (i ? p->owner[i - 1] : 0) || p->owner[i] >= p->clients) return false;
  return true;
}

}  // namespace fedsofim

extern "C" XLA_FFI_Error* fedsofim_sums(XLA_FFI_CallFrame* frame) {
  using namespace fedsofim;
  if (!is_call(frame)) return nullptr;
  Problem problem;
  if (!read(frame, &problem))
    return complain(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "operands of sums do not fit each other");
  for (float* out : {problem.out, problem.rest}) memset(out, 0, 4 * problem.settings * problem.clients * problem.d());
  problem.scale = scale_of(problem.weight, problem.blocks * problem.size);
  if (problem.blocks == 0 || problem.size == 0 || problem.classes == 0) return nullptr;
  const int64_t slice = most(1, kSliceNumbers / problem.d());
  for (int64_t first = 0; first < problem.settings; first += slice)
    if (!run_slice(frame, problem, first, least(slice, problem.settings - first)))
      return complain(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for the clipped sums, or more records than add up in doubles");
  return nullptr;
}
