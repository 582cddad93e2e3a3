/* GCC's shuffle by a vector of positions, for clang, which has only the form with positions as constants.
 *
 * Included ahead of a generated file when clang compiles it. The positions are constants after inlining, so each becomes the
 * shuffle instructions a constant form would give.
 */
#define SHUFFLES(n, kind, type)                                                                                             \
  typedef type shuffle_##kind##n __attribute__((vector_size(4 * n)));                                                       \
  static inline __attribute__((overloadable, always_inline, unused)) shuffle_##kind##n __builtin_shuffle(                   \
      shuffle_##kind##n x, shuffle_at##n at) {                                                                              \
    shuffle_##kind##n result;                                                                                               \
    for (int i = 0; i < n; i++) result[i] = x[at[i] & (n - 1)];                                                             \
    return result;                                                                                                          \
  }                                                                                                                         \
  static inline __attribute__((overloadable, always_inline, unused)) shuffle_##kind##n __builtin_shuffle(                   \
      shuffle_##kind##n x, shuffle_##kind##n y, shuffle_at##n at) {                                                         \
    shuffle_##kind##n result;                                                                                               \
    for (int i = 0; i < n; i++) result[i] = at[i] & n ? y[at[i] & (n - 1)] : x[at[i] & (n - 1)];                            \
    return result;                                                                                                          \
  }
#define SHUFFLES_OF(n)                                                                                                      \
  typedef int shuffle_at##n __attribute__((vector_size(4 * n)));                                                            \
  SHUFFLES(n, f, float)                                                                                                     \
  SHUFFLES(n, i, int)
SHUFFLES_OF(2)
SHUFFLES_OF(4)
SHUFFLES_OF(8)
SHUFFLES_OF(16)
#undef SHUFFLES_OF
#undef SHUFFLES
