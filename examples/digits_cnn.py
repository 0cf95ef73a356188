"""A small CNN on scikit-learn's digits (1,797 images of 8 x 8), trained by any number of workers.

python examples/digits_cnn.py                                        # alone
paceline run -n 4 --strategy ssp:3 examples/digits_cnn.py            # four workers
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import paceline

TEST_IMAGES = 360


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Training and test images, split in the same way every time."""
    data = load_digits()
    order = torch.randperm(len(data.target), generator=torch.Generator().manual_seed(0))
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1)[order] / 8 - 1
    labels = torch.tensor(data.target)[order]
    test = TensorDataset(images[:TEST_IMAGES], labels[:TEST_IMAGES])
    return TensorDataset(images[TEST_IMAGES:], labels[TEST_IMAGES:]), test


def cnn() -> nn.Module:
    """Two convolutions and two linear layers, 22,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--strategy", default="sync")
    args = parser.parse_args()

    train, test = digits()
    loader = DataLoader(train, batch_size=args.batch, shuffle=True)
    test_loader = DataLoader(test, batch_size=120)
    model = cnn()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    worker = paceline.Worker(model, optimizer, strategy=args.strategy)
    for _ in range(args.epochs):
        for images, labels in worker.batches(loader):
            loss = criterion(worker(images), labels)
            worker.step(loss)
        accuracy = evaluate(worker, test_loader)
        worker.log(accuracy=accuracy)
    if worker.rank == 0:
        print(f"test accuracy {accuracy:.4f}")
    worker.close()


def evaluate(worker: paceline.Worker, loader: DataLoader) -> float:
    """Share of the loader's images that the model gets right; the workers share the work."""
    right, seen = 0, 0
    with worker.evaluate():
        for images, labels in worker.batches(loader):
            right += (worker(images).argmax(dim=1) == labels).sum().item()
            seen += len(labels)
        return worker.mean(right / max(seen, 1), weight=seen)


if __name__ == "__main__":
    main()
