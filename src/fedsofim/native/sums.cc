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
constexpr int64_t kLanesInTile = 8;         // at most
constexpr int64_t kTileNumbers = 1 << 13;   // features of a tile: 32 kB, and as much for their transpose
constexpr int64_t kSliceNumbers = 1 << 16;  // sums that a thread adds to in turn: 256 kB
constexpr int64_t kMostPartial = 1 << 24;   // sums at the chunks' ends

inline int64_t lanes_up(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// What is summed. x (blocks, size, p), y and weight (blocks, size), owner (blocks,) in ascending order,
// theta (settings, thetas, p+1, classes) with one θ for all or one per client, out (settings, clients, p+1, classes).
struct Problem {
  const float *x, *weight, *theta;
  const int32_t *y, *owner;
  float* out;
  int64_t blocks, size, p, settings, thetas, clients, classes;
  float clip;

  int64_t d() const { return (p + 1) * classes; }
  int64_t width() const { return lanes_up(p); }
  int64_t tile() const { return kLanes * least(most(kTileNumbers / width() / kLanes, 1), kLanesInTile); }
  int64_t tiles_in_block() const { return (size + tile() - 1) / tile(); }
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
  float* partial;  // (chunks, 2, count, d): sums of a chunk's first and last client, who may have records elsewhere
  bool failed;

  float* end_of(int64_t chunk, int last) const { return partial + (2 * chunk + last) * count * problem.d(); }
  int64_t start(int64_t chunk) const { return chunk * problem.tiles() / chunks; }
  void run(Queue* queue, int64_t chunk);
};

// What one thread works in.
struct Bench {
  float *rows, *columns, *z, *weight, *sums, *bias, *memory;
  int32_t* y;

  Bench(const Problem& p, int64_t count) {
    const int64_t tile = p.tile(), width = p.width();
    const int64_t sizes[] = {tile * width, tile * width, p.classes * tile, tile, tile, count * p.classes * width,
                             count * p.classes * kLanes};
    int64_t total = 0;
    for (int64_t n : sizes) total += lanes_up(n);
    memory = (float*)aligned_alloc(64, 4 * total);
    float* parts[7];
    float* at = memory;
    for (int i = 0; i < 7; i++) parts[i] = at, at += lanes_up(sizes[i]);
    rows = parts[0], columns = parts[1], z = parts[2], weight = parts[3], y = (int32_t*)parts[4];
    sums = parts[5], bias = parts[6];
  }
  ~Bench() { free(memory); }
  Bench(const Bench&) = delete;
};

// The records of one tile, whole lanes of them: the last are padding of weight 0.
struct Tile {
  const float* rows;
  int64_t pitch, count;
  bool empty;
};

Tile fetch(const Problem& p, int64_t number, Bench& bench) {
  const int64_t block = number / p.tiles_in_block(), at = number % p.tiles_in_block() * p.tile();
  const int64_t n = least(p.tile(), p.size - at), whole = lanes_up(n), from = block * p.size + at;
  memset(bench.weight, 0, 4 * whole), memset(bench.y, 0, 4 * whole);
  memcpy(bench.weight, p.weight + from, 4 * n), memcpy(bench.y, p.y + from, 4 * n);
  bool empty = true;
  for (int64_t i = 0; i < n; i++) empty &= bench.weight[i] == 0.0f;
  if (n == whole && p.p == p.width()) return {p.x + from * p.p, p.p, whole, empty};
  memset(bench.rows, 0, 4 * whole * p.width());
  for (int64_t i = 0; i < n; i++) memcpy(bench.rows + i * p.width(), p.x + (from + i) * p.p, 4 * p.p);
  return {bench.rows, p.width(), whole, empty};
}

// Adds a tile's clipped gradients to the sums of every setting.
void add_tile(const Job& job, const Tile& tile, int64_t client, Bench& bench) {
  const Problem& p = job.problem;
  const int64_t width = p.width(), stride = p.tile();
  Lanes square[kLanesInTile];
  for (int64_t i = 0; i < tile.count; i += kLanes) {
    float* columns = bench.columns + i * width;
    for (int64_t k = 0; k < width; k += kLanes)
      transpose(tile.rows + i * tile.pitch + k, tile.pitch, columns + k * kLanes);
    square[i / kLanes] = square_norm(columns, width);  // what is beyond p is 0
  }
  for (int64_t s = 0; s < job.count; s++) {
    const float* theta = p.theta_of(job.first + s, client);
    float *sums = bench.sums + s * p.classes * width, *bias = bench.bias + s * p.classes * kLanes;
    for (int64_t i = 0; i < tile.count; i += kLanes) {
      const float* columns = bench.columns + i * width;
      in_shares(p.classes, [&](int64_t c, int64_t w) {
        with_constant(w, Logits{columns, theta + c, p.p, p.classes, stride, bench.z + c * stride + i});
      });
      residuals(bench.z + i, stride, p.classes, bench.y + i, bench.weight + i, square[i / kLanes], p.clip);
      for (int64_t c = 0; c < p.classes; c++)
        store(bias + c * kLanes, load(bias + c * kLanes) + load(bench.z + c * stride + i));
    }
    in_shares(p.classes, [&](int64_t c, int64_t w) {
      with_constant(w, Outer{tile.rows, bench.z + c * stride, tile.pitch, tile.count, stride, width, sums + c * width});
    });
  }
}

// Writes the sums of one setting where they belong, in θ's own layout.
void write(const Problem& p, const float* sums, const float* bias, float* to) {
  for (int64_t k = 0; k < p.p; k++)
    for (int64_t c = 0; c < p.classes; c++) to[k * p.classes + c] = sums[c * p.width() + k];
  for (int64_t c = 0; c < p.classes; c++) {
    float total = 0;
    for (int i = 0; i < kLanes; i++) total += bias[c * kLanes + i];
    to[p.p * p.classes + c] = total;
  }
}

// The sums of a chunk's records. Only its first and its last client may have records in other chunks.
void run_chunk(const Job& job, int64_t chunk, Bench& bench) {
  const Problem& p = job.problem;
  const int64_t begin = job.start(chunk), end = job.start(chunk + 1), first = p.owner_of(begin);
  const int64_t last = p.owner_of(end - 1);
  for (int64_t tile = begin; tile < end;) {
    const int64_t client = p.owner_of(tile);
    memset(bench.sums, 0, 4 * job.count * p.classes * p.width());
    memset(bench.bias, 0, 4 * job.count * p.classes * kLanes);
    for (; tile < end && p.owner_of(tile) == client; tile++) {
      Tile records = fetch(p, tile, bench);
      if (!records.empty) add_tile(job, records, client, bench);
    }
    for (int64_t s = 0; s < job.count; s++) {
      float* to = client == first || client == last ? job.end_of(chunk, client != first) + s * p.d()
                                                    : p.out + ((job.first + s) * p.clients + client) * p.d();
      write(p, bench.sums + s * p.classes * p.width(), bench.bias + s * p.classes * kLanes, to);
    }
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

// Adds the chunks' ends to the result, in the order of the chunks.
void join(const Job& job) {
  const Problem& p = job.problem;
  for (int64_t chunk = 0; chunk < job.chunks; chunk++) {
    const int64_t owners[] = {p.owner_of(job.start(chunk)), p.owner_of(job.start(chunk + 1) - 1)};
    for (int end = 0; end < (owners[0] == owners[1] ? 1 : 2); end++)
      for (int64_t s = 0; s < job.count; s++) {
        const float* from = job.end_of(chunk, end) + s * p.d();
        float* to = p.out + ((job.first + s) * p.clients + owners[end]) * p.d();
        for (int64_t i = 0; i < p.d(); i++) to[i] += from[i];
      }
  }
}

// Settings [first, first + count), on all threads; false if there was no memory.
bool run_slice(const XLA_FFI_CallFrame* frame, const Problem& problem, int64_t first, int64_t count) {
  const int64_t fitting = most(1, kMostPartial / (2 * count * problem.d()));
  const int64_t chunks = least(most(1, problem.tiles() / kTilesInChunk), least(kChunks, fitting));
  Job job = {problem, first, count, chunks, (float*)malloc(4 * chunks * 2 * count * problem.d()), false};
  const bool fine = job.partial && on_all_threads(frame, chunks, &job) && !job.failed;
  if (fine) join(job);
  free(job.partial);
  return fine;
}

// Reads the operands; false where their kinds or sizes do not belong together.
bool read(const XLA_FFI_CallFrame* frame, Problem* p) {
  if (frame->args.size != 6 || frame->rets.size != 1) return false;
  XLA_FFI_Buffer* b[7];
  for (int i = 0; i < 6; i++) b[i] = operand(frame, i);
  b[6] = result(frame, 0);
  const XLA_FFI_DataType real = XLA_FFI_DataType_F32, whole = XLA_FFI_DataType_S32;
  if (!is(b[0], real, 3) || !is(b[1], whole, 2) || !is(b[2], real, 2) || !is(b[3], whole, 1) || !is(b[4], real, 4) ||
      !is(b[5], real, 0) || !is(b[6], real, 4))
    return false;
  const int64_t *x = b[0]->dims, *theta = b[4]->dims, *out = b[6]->dims;
  *p = {(float*)b[0]->data, (float*)b[2]->data, (float*)b[4]->data, (int32_t*)b[1]->data, (int32_t*)b[3]->data,
        (float*)b[6]->data, x[0], x[1], x[2], theta[0], theta[1], out[1], theta[3], *(float*)b[5]->data};
  for (int i : {1, 2})
    if (b[i]->dims[0] != p->blocks || b[i]->dims[1] != p->size) return false;
  if (p->p < 1 || b[3]->dims[0] != p->blocks || (p->thetas != 1 && p->thetas != p->clients)) return false;
  if (theta[2] != p->p + 1 || out[0] != p->settings || out[2] != p->p + 1 || out[3] != p->classes) return false;
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
  memset(problem.out, 0, 4 * problem.settings * problem.clients * problem.d());
  if (problem.blocks == 0 || problem.size == 0 || problem.classes == 0) return nullptr;
  const int64_t slice = most(1, kSliceNumbers / problem.d());
  for (int64_t first = 0; first < problem.settings; first += slice)
    if (!run_slice(frame, problem, first, least(slice, problem.settings - first)))
      return complain(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for the clipped sums");
  return nullptr;
}
