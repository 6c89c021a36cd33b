// M ← βM + (1-β)G with |M|² and M·G, in one pass over memory. Chunks are added up in their order, in doubles.
#include "crew.h"
#include "tile.h"

namespace fedsofim {

constexpr int64_t kBlock = 1 << 13;     // numbers whose products are added up in floats: few, so that they do not drift
constexpr int64_t kChunk = 4 * kBlock;  // numbers worth waking a thread for

struct Pass {
  const float *m, *g;
  float* out;  // may be m itself
  int64_t n;
  float beta;
  double* sums;  // (chunks, 2)

  int64_t chunks() const { return (n + kChunk - 1) / kChunk; }

  void run(Queue* queue, int64_t chunk) {
    for (; chunk < queue->chunks; chunk = queue->take()) {
      double* total = sums + 2 * chunk;
      total[0] = total[1] = 0;
      const int64_t end = least(n, (chunk + 1) * kChunk);
      for (int64_t i = chunk * kChunk; i < end; i += kBlock) add_block(i, least(end, i + kBlock), total);
      queue->finish();
    }
  }

  void add_block(int64_t i, int64_t end, double* total) const {
    Lanes square[2] = {}, along[2] = {};
    for (; i + 2 * kLanes <= end; i += 2 * kLanes)
      for (int j = 0; j < 2; j++) {
        const Lanes gradient = load(g + i + j * kLanes);
        const Lanes now = load(m + i + j * kLanes) * beta + gradient * (1 - beta);
        store(out + i + j * kLanes, now);
        square[j] += now * now;
        along[j] += now * gradient;
      }
    for (int j = 0; j < kLanes; j++) {
      total[0] += (double)square[0][j] + square[1][j];
      total[1] += (double)along[0][j] + along[1][j];
    }
    for (; i < end; i++) {
      out[i] = m[i] * beta + g[i] * (1 - beta);
      total[0] += (double)out[i] * out[i];
      total[1] += (double)out[i] * g[i];
    }
  }
};

int64_t numbers(const XLA_FFI_Buffer* buffer) {
  int64_t n = buffer->dtype == XLA_FFI_DataType_F32 ? 1 : -1;
  for (int64_t i = 0; i < buffer->rank; i++) n *= buffer->dims[i];
  return n;
}

}  // namespace fedsofim

extern "C" XLA_FFI_Error* fedsofim_momentum(XLA_FFI_CallFrame* frame) {
  using namespace fedsofim;
  if (!is_call(frame)) return nullptr;
  if (frame->args.size != 3 || frame->rets.size != 2)
    return complain(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "momentum takes three operands and gives two");
  XLA_FFI_Buffer *m = operand(frame, 0), *g = operand(frame, 1), *beta = operand(frame, 2);
  XLA_FFI_Buffer *out = result(frame, 0), *sums = result(frame, 1);
  const int64_t n = numbers(m);
  if (n < 0 || numbers(g) != n || numbers(out) != n || numbers(beta) != 1 || numbers(sums) != 2)
    return complain(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, "operands of momentum do not fit each other");
  Pass pass = {(float*)m->data, (float*)g->data, (float*)out->data, n, *(float*)beta->data, nullptr};
  pass.sums = (double*)malloc(sizeof(double) * 2 * most(1, pass.chunks()));
  if (!pass.sums || !on_all_threads(frame, pass.chunks(), &pass)) {
    free(pass.sums);
    return complain(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "no memory for the sums of momentum");
  }
  double total[2] = {};
  for (int64_t c = 0; c < 2 * pass.chunks(); c++) total[c % 2] += pass.sums[c];
  for (int i = 0; i < 2; i++) ((float*)sums->data)[i] = (float)total[i];
  free(pass.sums);
  return nullptr;
}
