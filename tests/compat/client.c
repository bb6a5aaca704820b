/* Owns the smallest client in C: what it names must be declared, without any header of CUDA. */
#include <cudnn.h>

int main(void) {
  cudnnHandle_t handle = NULL;
  cudnnBackendDescriptor_t tensor = NULL;
  const int64_t uid = 1;
  if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) return 1;
  cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor);
  cudnnBackendSetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid);
  cudnnBackendDestroyDescriptor(tensor);
  return cudnnDestroy(handle) != CUDNN_STATUS_SUCCESS;
}
